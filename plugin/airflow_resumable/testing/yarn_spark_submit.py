# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for spark-submit on YARN in cluster mode: no Spark in it.

It understands the command line that Airflow's hook writes, submits to the ResourceManager stand-in with the
tags of ``spark.yarn.tags``, and prints what Spark's YARN client prints, in its order: the id is in a line
*before* the ResourceManager has taken the application. The first argument of the application is the plan in
JSON, see `airflow_resumable.testing.yarn_stand_in_apps.App`.

Properties: https://spark.apache.org/docs/latest/running-on-yarn.html
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

URLS_VARIABLE = "YARN_STAND_IN_URLS"
"""Where the ResourceManagers are, comma-separated; a real client reads yarn-site.xml."""

_FLAGS = {"--verbose"}


def parse(arguments: list[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Split a command line into options, Spark properties, and the application with its arguments."""
    options: dict[str, str] = {}
    conf: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        if name in _FLAGS:
            continue
        value = rest.pop(0)
        if name == "--conf":
            key, _, setting = value.partition("=")
            conf[key] = setting
        else:
            options[name] = value
    return options, conf, rest


class Client:
    """Asks the active ResourceManager stand-in."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of the first that answers as the active one.

        Raises:
            ConnectionError: None did, or the connection broke.
        """
        troubles = []
        for url in self._urls:
            connection = HTTPConnection(urlsplit(url).netloc, timeout=600)
            try:
                connection.request(method, path, None if body is None else json.dumps(body))
                response = connection.getresponse()
                text = response.read().decode()
            except ConnectionRefusedError as error:
                troubles.append(f"{url}: {error}")
                continue
            except (OSError, HTTPException) as error:
                raise ConnectionError(f"{url}: {type(error).__name__}: {error}") from error
            finally:
                connection.close()
            if response.status in (200, 202) and "RM" not in text[:30]:
                return json.loads(text) if text else None
            troubles.append(f"{url}: {response.status} {text.strip()}")
        raise ConnectionError("; ".join(troubles))


def say(text: str, logger: str = "Client") -> None:
    """Print a line as log4j does with Spark's default pattern."""
    print(f"{time.strftime('%y/%m/%d %H:%M:%S')} INFO {logger}: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Submit, and wait for the end unless ``spark.yarn.submit.waitAppCompletion`` is false."""
    options, conf, application = parse(sys.argv[1:])
    if options.get("--master") != "yarn" or options.get("--deploy-mode") != "cluster":
        print("this stand-in serves --master yarn --deploy-mode cluster alone", file=sys.stderr)
        return 2
    client = Client(os.environ[URLS_VARIABLE].split(","))
    plan = application[1] if len(application) > 1 else "{}"
    tags = [tag.strip() for tag in conf.get("spark.yarn.tags", "").split(",") if tag.strip()]
    try:
        app_id = client.call("POST", "/ws/v1/cluster/apps/new-application")["application-id"]
        say("Verifying our application has not requested more than the maximum memory capability")
        say(f"Uploading resource file:{application[0]} -> hdfs:/.sparkStaging/{app_id}/{application[0]}")
        say(f"Submitting application {app_id} to ResourceManager")
        context = {
            "application-id": app_id,
            "application-name": options.get("--name", ""),
            "application-type": "SPARK",
            "queue": options.get("--queue", "default"),
            "application-tags": {"tag": tags},
            "am-container-spec": {"commands": {"command": plan}},
        }
        client.call("POST", f"/ws/v1/cluster/apps?user.name={os.environ.get('USER', 'airflow')}", context)
        say(f"Submitted application {app_id}", "YarnClientImpl")
        waits = conf.get("spark.yarn.submit.waitAppCompletion", "true") != "false"
        time.sleep(float(json.loads(plan).get("linger", 0)))
        return _follow(client, app_id, waits=waits)
    except ConnectionError as error:
        print(f'Exception in thread "main" java.io.IOException: {error}', file=sys.stderr)
        return 1


def _follow(client: Client, app_id: str, *, waits: bool) -> int:
    while True:
        app = client.call("GET", f"/ws/v1/cluster/apps/{app_id}")["app"]
        say(f"Application report for {app_id} (state: {app['state']})")
        if app["state"] in ("FAILED", "KILLED") or app["finalStatus"] not in ("UNDEFINED", "SUCCEEDED"):
            print(
                f'Exception in thread "main" org.apache.spark.SparkException: Application {app_id} '
                f"finished with {app['state']}, {app['finalStatus']}",
                file=sys.stderr,
            )
            return 1
        if not waits or app["state"] == "FINISHED":
            return 0
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
