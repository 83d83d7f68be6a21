# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Starts and stops AWS' stand-in, moves its jobs, spoils requests to it, and reads its log."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from airflow_resumable.testing.aws import faults
from airflow_resumable.testing.aws.journal import Logged, read
from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.http_faults import HttpFaultProxy

if TYPE_CHECKING:
    from airflow_resumable.testing.http_faults import Held, Reply, Spoiling

ROLE = "arn:aws:iam::123456789012:role/job"
"""A role in the account that moto gives everybody."""

_REGION = "us-east-1"
_CONTROL = "/resumable-control"
_STARTS = ("AddJobFlowSteps", "RunJobFlow", "StartJobRun")
_OWN = "by-the-test"


@dataclass(frozen=True, slots=True)
class Started:
    """A job that the service really created.

    Attributes:
        id: The service's.
        service: The boto3 client's name.
        name: A step's or a job run's.
        token: Its ``clientToken``; steps have none.
        at: When, seconds since the epoch.
    """

    id: str
    service: str
    name: str | None
    token: str | None
    at: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """One job in a cancel request.

    Attributes:
        id: The job's.
        accepted: Whether the service said it would.
        reason: Why not, or the error's code.
        at: When, seconds since the epoch.
    """

    id: str
    accepted: bool
    reason: str | None
    at: float


class AwsService:
    """EMR, EMR Serverless and EMR on EKS on this machine: moto as a process of its own, mended, and a proxy.

    The process keeps its state while task processes die, and ends with the block or with this process.
    Clients talk to `url`, the proxy in this process, which spoils what `fail` and `gate` say.

    A job runs until its own words end it (``sleep SECONDS``, ``exit CODE`` anywhere in a step's Args or in a
    job driver) or a test does (`finish`, `fail_job`, `stop`).

    Args:
        folder: For the request log and the process' output; a temporary one without.
        start_timeout: Seconds to wait for it to listen.

    Raises:
        StackError: It does not start.
    """

    region = _REGION

    def __init__(self, folder: Path | None = None, *, start_timeout: float = 60.0) -> None:
        self._own_folder = None if folder else tempfile.TemporaryDirectory(prefix="airflow-resumable-aws-")
        self.folder = folder or Path(self._own_folder.name if self._own_folder else "")
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._proxy: HttpFaultProxy | None = None

    def __enter__(self) -> Self:
        """Start it and wait until it listens."""
        log = self.folder / "service.log"
        command = [sys.executable, "-P", "-m", "airflow_resumable.testing.aws.server"]
        command += ["--journal", str(self._journal), "--parent-pid", str(os.getpid())]
        with log.open("ab") as errors:
            # In a session of its own, so that a Ctrl-C at the terminal reaches the test first.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        try:
            self._port = self._first_line(self._process, log)
            self._proxy = HttpFaultProxy(self._port, replies=faults.REPLIES)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End the process and the proxy; a second call does nothing."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._own_folder is not None:
            self._own_folder.cleanup()

    def _first_line(self, process: subprocess.Popen[bytes], log: Path) -> int:
        assert process.stdout is not None
        readable = select.poll()
        readable.register(process.stdout, select.POLLIN)
        line = process.stdout.readline() if readable.poll(self._start_timeout * 1000) else b""
        if not line.strip().isdigit():
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise StackError(f"the AWS stand-in did not start (pip install 'moto[server]'?): {said}")
        return int(line)

    @property
    def _journal(self) -> Path:
        return self.folder / "requests.jsonl"

    @property
    def proxy(self) -> HttpFaultProxy:
        """The proxy before the service, for faults beyond `fail`."""
        if self._proxy is None:
            raise StackError("the AWS stand-in isn't running: use AwsService in a with block")
        return self._proxy

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return self.proxy.url

    @property
    def pid(self) -> int:
        """The service's process."""
        if self._process is None:
            raise StackError("the AWS stand-in isn't running: use AwsService in a with block")
        return self._process.pid

    def environment(self) -> dict[str, str]:
        """Return what a task's process needs in its environment: credentials, region, Airflow's connection.

        Nothing of whoever runs the tests is left: no configuration file, no instance's role, no proxy.
        """
        return {
            "AIRFLOW_CONN_AWS_DEFAULT": self.connection(),
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def connection(self) -> str:
        """Return Airflow's connection, in JSON."""
        return json.dumps(
            {
                "conn_type": "aws",
                "login": "testing",
                "password": "testing",
                "extra": {"endpoint_url": self.url, "region_name": self.region},
            }
        )

    def client(self, service: str, *, retries: int = 0, own: bool = True) -> Any:
        """Return a boto3 client.

        Args:
            service: ``emr``, ``emr-serverless`` or ``emr-containers``.
            retries: How often botocore tries again.
            own: The test's own: it goes past the proxy, and `requests` leaves it out; else like a task's.
        """
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        return boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self._port}" if own else self.url,
            region_name=self.region,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=Config(
                retries={"max_attempts": retries},
                proxies={},
                user_agent_extra=_OWN if own else None,
                read_timeout=30,
            ),
        )

    # What jobs run on.

    def cluster(self, *, concurrency: int = 1, release: str = "emr-7.0.0", keep_alive: bool = True) -> str:
        """Make an EMR cluster and return its id.

        Args:
            concurrency: How many steps run at once.
            release: Its release; older ones than emr-5.28.0 can't cancel a running step.
            keep_alive: Whether it stays when all steps are done.
        """
        with_step = {} if keep_alive else {"Steps": [step("first")]}
        return str(
            self.client("emr").run_job_flow(
                Name="cluster",
                ReleaseLabel=release,
                Instances={
                    "InstanceCount": 1,
                    "MasterInstanceType": "m5.xlarge",
                    "KeepJobFlowAliveWhenNoSteps": keep_alive,
                },
                JobFlowRole="EMR_EC2_DefaultRole",
                ServiceRole="EMR_DefaultRole",
                StepConcurrencyLevel=concurrency,
                **with_step,
            )["JobFlowId"]
        )

    def application(self, name: str = "application") -> str:
        """Make an EMR Serverless application and return its id."""
        client = self.client("emr-serverless")
        return str(
            client.create_application(name=name, releaseLabel="emr-7.0.0", type="SPARK")["applicationId"]
        )

    def virtual_cluster(self, namespace: str | None = None) -> str:
        """Make a virtual cluster of EMR on EKS and return its id; each has a namespace of its own."""
        namespace = namespace or f"jobs-{time.monotonic_ns()}"
        provider = {"id": "eks", "type": "EKS", "info": {"eksInfo": {"namespace": namespace}}}
        client = self.client("emr-containers")
        return str(client.create_virtual_cluster(name="virtual", containerProvider=provider)["id"])

    # What becomes of jobs.

    def finish(self, job_id: str) -> None:
        """End a job well, whatever its state."""
        self._wish("finish", id=job_id)

    def let_go(self, owner_id: str) -> None:
        """Let all jobs of a cluster or application that only a test ends succeed, those to come too."""
        self._wish("let_go", id=owner_id)

    def fail_job(self, job_id: str, reason: str = "the job failed") -> None:
        """End a job badly, whatever its state; a step's ActionOnFailure acts."""
        self._wish("fail", id=job_id, reason=reason)

    def stop(self, job_id: str) -> None:
        """End a job as cancelled, whatever its state."""
        self._wish("stop", id=job_id)

    def hold(self, job_id: str) -> None:
        """Let a job move no more by itself: neither start, nor end, nor get over its cancelling."""
        self._wish("hold", id=job_id)

    def deafen(self, job_id: str) -> None:
        """Let a job run on although its cancel was accepted."""
        self._wish("deafen", id=job_id)

    def release(self, job_id: str) -> None:
        """End `hold` and `deafen`."""
        self._wish("release", id=job_id)

    def advance(self, job_id: str) -> str:
        """Move a job one state on, and return that."""
        return str(self._wish("advance", id=job_id))

    def become(self, job_id: str, state: str) -> None:
        """Put a job, or a Serverless application, into any state, one that no document knows for instance."""
        self._wish("become", id=job_id, state=state)

    def state(self, job_id: str) -> str:
        """Return a job's state now; it is no look that `pace` counts."""
        return str(self._wish("state", id=job_id))

    def forget(self, job_id: str) -> None:
        """Drop a job from the service's history."""
        self._wish("forget", id=job_id)

    def forget_tokens(self) -> None:
        """Let every ``clientToken`` be a new one again."""
        self._wish("forget_tokens")

    def refuse_cancel(self, step_id: str, reason: str = "the step can't be cancelled now") -> None:
        """Answer the next cancel of a step FAILED; a job run's is refused by `fail`."""
        self._wish("refuse_cancel", id=step_id, reason=reason)

    def end_cluster(
        self,
        cluster_id: str,
        *,
        state: Literal["TERMINATED", "TERMINATED_WITH_ERRORS"] = "TERMINATED_WITH_ERRORS",
        reason: str = "Instance failure",
        running: Literal["CANCELLED", "INTERRUPTED", "FAILED"] = "CANCELLED",
    ) -> None:
        """End a cluster as its own trouble would.

        Args:
            cluster_id: The cluster.
            state: Its last.
            reason: Told as the state's.
            running: What running steps become.
        """
        self._wish("end_cluster", id=cluster_id, state=state, reason=reason, running=running)

    def pace(
        self, *, startup_looks: int | None = None, cancel_looks: int | None = None, held: bool | None = None
    ) -> None:
        """Say how fast all jobs pass through the states around their run; `reset` undoes it.

        Args:
            startup_looks: How many replies show each state before the run; 0 from the start on.
            cancel_looks: How many replies show a cancelled job that still stops; 1 from the start on.
            held: Whether `hold` is put on every new job.
        """
        given = {"startup_looks": startup_looks, "cancel_looks": cancel_looks, "held": held}
        self._wish("pace", values={name: value for name, value in given.items() if value is not None})

    def reset(self) -> None:
        """Forget every cluster, job, token, fault and request."""
        self.proxy.heal()
        self._wish("reset")

    def _wish(self, do: str, **fields: Any) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        body = json.dumps({"do": do, **fields}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{_CONTROL}", body, method="POST")
        request.add_header("Content-Type", "application/json")
        try:
            with opener.open(request, timeout=30) as reply:
                return json.load(reply)["result"]
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(f"{do} {fields}: {error.read().decode()}") from None

    # What happens to requests.

    def fail(
        self,
        fault: faults.AwsFault | Reply,
        action: str,
        *,
        service: str | None = None,
        times: int = 1,
        after: int = 0,
        every: int | None = None,
        seconds: float = 0.0,
        access_key: str | None = None,
        **parameters: Any,
    ) -> Spoiling:
        """Spoil the next requests of an action; botocore's own repetitions count.

        Args:
            fault: ``throttle`` (400), ``too_many`` (429), ``error`` (500), ``unavailable`` (503), ``denied``,
                ``unauthorized``, ``expired_token`` (403), ``reset``: nothing is passed on; ``lost_reply``,
                ``truncated``, ``slow``: carried out; or a reply to send instead.
            action: Like ``StartJobRun``; ``*`` for all.
            service: The boto3 client's name; None for any.
            times: How many, 0 for all.
            after: Let so many through first.
            every: Spoil each so-many-th only.
            seconds: For ``slow``.
            access_key: Only requests signed with it: an expired one stays so until the client has another.
            parameters: What the request must say, by boto3's names.

        Returns:
            Says how many were met.
        """
        found: Any = faults.REPLIES.get(fault, fault) if isinstance(fault, str) else fault
        match = faults.action(action, service, parameters, access_key)
        return self.proxy.fail(found, match, times=times, after=after, every=every, seconds=seconds)

    def gate(
        self,
        action: str,
        *,
        when: Literal["arrived", "answered"] = "arrived",
        service: str | None = None,
        after: int = 0,
        **parameters: Any,
    ) -> Held:
        """Stop the next request of an action until it is released.

        Args:
            action: Like ``StartJobRun``.
            when: ``arrived``: before the service sees it; ``answered``: carried out, its reply waits.
            service: The boto3 client's name; None for any.
            after: Let so many through first.
            parameters: What the request must say, by boto3's names.
        """
        return self.proxy.hold(faults.action(action, service, parameters), when=when, after=after)

    # What the service saw.

    def requests(
        self, action: str | None = None, *, service: str | None = None, own: bool = False
    ) -> list[Logged]:
        """List the requests that reached the service, in order.

        Args:
            action: Like ``StartJobRun``; None for all.
            service: The boto3 client's name; None for all.
            own: With those of the test's own clients.
        """
        return [
            logged
            for logged in read(self._journal)
            if action in (None, logged.action)
            and service in (None, logged.service)
            and (own or not logged.own)
        ]

    def wait_for(
        self, action: str, *, count: int = 1, service: str | None = None, timeout: float = 30.0
    ) -> list[Logged]:
        """Wait until the service has had so many requests of an action, and return them.

        Raises:
            TimeoutError: It hasn't.
        """
        until = time.monotonic() + timeout
        while len(found := self.requests(action, service=service)) < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(found)} {action} requests instead of {count} within {timeout} s")
            time.sleep(0.02)
        return found

    def started(self, service: str | None = None) -> list[Started]:
        """List the jobs that the service really created, oldest first, forgotten ones included."""
        return [
            job
            for logged in self.requests(service=service, own=True)
            if logged.action in _STARTS
            for job in _jobs(logged)
        ]

    def cancels(self, service: str | None = None) -> list[Cancel]:
        """List the jobs that cancel requests named, oldest first; not those of a terminated cluster."""
        return [
            cancel
            for logged in self.requests(service=service, own=True)
            if logged.action in ("CancelSteps", "CancelJobRun")
            for cancel in _cancels(logged)
        ]


def step(
    name: str,
    arguments: list[str] | None = None,
    *,
    on_failure: str = "CONTINUE",
    jar: str = "command-runner.jar",
) -> dict[str, Any]:
    """Return a step for AddJobFlowSteps.

    Args:
        name: Its name.
        arguments: ``["sleep", "1"]`` ends after a second; see `AwsService`.
        on_failure: Its ActionOnFailure.
        jar: What runs.
    """
    return {
        "Name": name,
        "ActionOnFailure": on_failure,
        "HadoopJarStep": {"Jar": jar, "Args": arguments or ["spark-submit", "job.py"]},
    }


def _jobs(logged: Logged) -> list[Started]:
    said = logged.parameters
    names = [one.get("Name") for one in said.get("Steps", ())] or [said.get("name")]
    ids = [job_id for job_id in logged.created if not job_id.startswith("j-")]
    return [
        Started(job_id, logged.service, name, said.get("clientToken"), logged.at)
        for job_id, name in zip(ids, names, strict=False)
    ]


def _cancels(logged: Logged) -> list[Cancel]:
    if logged.action == "CancelSteps" and logged.status < 400:
        return [
            Cancel(one["StepId"], one["Status"] == "SUBMITTED", one.get("Reason"), logged.at)
            for one in logged.reply["CancelStepsInfoList"]
        ]
    said = logged.parameters
    named = said.get("StepIds") or [said["jobRunId" if logged.service == "emr-serverless" else "id"]]
    return [Cancel(str(job_id), logged.status < 400, logged.error, logged.at) for job_id in named]
