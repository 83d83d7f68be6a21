# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The AWS stand-in's process, its log, the faults before it, and what it gives Airflow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import psutil
import pytest
from botocore.exceptions import (  # type: ignore[import-untyped]
    ClientError,
    ConnectionClosedError,
)

from airflow_resumable.testing.aws import ROLE, AwsService, step

_OWNER = """
import sys
from pathlib import Path
from airflow_resumable.testing.aws import AwsService
with AwsService(Path(sys.argv[1])) as aws:
    print(aws.pid, flush=True)
    sys.stdin.read()
"""


def start(aws: AwsService, client: Any, app: str, token: str) -> dict[str, Any]:
    said: dict[str, Any] = client.start_job_run(
        applicationId=app,
        clientToken=token,
        executionRoleArn=ROLE,
        jobDriver={"sparkSubmit": {"entryPoint": "s3://bucket/job.py"}},
    )
    return said


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [
        ("throttle", "ThrottlingException", 400),
        ("too_many", "TooManyRequestsException", 429),
        ("error", "InternalServerException", 500),
        ("unavailable", "ServiceUnavailable", 503),
        ("denied", "AccessDeniedException", 403),
        ("unauthorized", "UnrecognizedClientException", 403),
        ("expired_token", "ExpiredTokenException", 403),
    ],
)
def test_refusals_have_code_and_status_and_start_nothing(
    aws: AwsService, fault: Any, code: str, status: int
) -> None:
    """boto3 reads each as the error it stands for, over both protocols; the service sees none of them."""
    app, cluster = aws.application(), aws.cluster()
    serverless, emr = aws.client("emr-serverless", own=False), aws.client("emr", own=False)
    spoiled = [aws.fail(fault, "StartJobRun"), aws.fail(fault, "DescribeCluster")]
    for call in (
        lambda: start(aws, serverless, app, "token"),
        lambda: emr.describe_cluster(ClusterId=cluster),
    ):
        with pytest.raises(ClientError) as refused:
            call()
        said = refused.value.response
        assert (said["Error"]["Code"], said["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
    assert [one.hits for one in spoiled] == [1, 1]
    assert aws.requests() == []
    assert start(aws, serverless, app, "token")["jobRunId"]


def test_emr_names_its_server_error_in_two_ways(aws: AwsService) -> None:
    """AddJobFlowSteps has InternalServerError where others have InternalServerException."""
    emr = aws.client("emr", own=False)
    aws.fail("error", "AddJobFlowSteps")
    with pytest.raises(emr.exceptions.InternalServerError):
        emr.add_job_flow_steps(JobFlowId=aws.cluster(), Steps=[step("a")])


def test_lost_reply_has_started_the_job(aws: AwsService) -> None:
    """boto3 sees a closed connection, the service has a run, and the token finds it again."""
    app, client = aws.application(), aws.client("emr-serverless", own=False)
    aws.fail("lost_reply", "StartJobRun")
    with pytest.raises(ConnectionClosedError):
        start(aws, client, app, "token")
    [job] = aws.started()
    assert start(aws, client, app, "token")["jobRunId"] == job.id
    assert len(aws.started()) == 1


def test_reset_has_started_nothing(aws: AwsService) -> None:
    """boto3 sees the same closed connection, but there is no run."""
    client = aws.client("emr-serverless", own=False)
    aws.fail("reset", "StartJobRun")
    with pytest.raises(ConnectionClosedError):
        start(aws, client, aws.application(), "token")
    assert aws.started() == []


def test_truncated_reply_is_no_error_for_boto3(aws: AwsService) -> None:
    """boto3 returns a reply without its members: whoever asks must look for the id."""
    app, client = aws.application(), aws.client("emr-serverless", own=False)
    aws.fail("truncated", "StartJobRun")
    assert "jobRunId" not in start(aws, client, app, "token")
    assert len(aws.started()) == 1


def test_botocore_tries_a_throttled_call_again(aws: AwsService) -> None:
    """Its own repetitions are requests like any other."""
    client = aws.client("emr-serverless", own=False, retries=2)
    throttled = aws.fail("throttle", "StartJobRun", times=2)
    assert start(aws, client, aws.application(), "token")["jobRunId"]
    assert throttled.hits == 2


def test_token_expires_every_third_call(aws: AwsService) -> None:
    """A fault can come back again and again."""
    cluster, emr = aws.cluster(), aws.client("emr", own=False)
    expired = aws.fail("expired_token", "*", times=0, every=3)
    codes = []
    for _ in range(7):
        try:
            emr.describe_cluster(ClusterId=cluster)
            codes.append("ok")
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    assert codes == ["ok", "ok", "ExpiredTokenException"] * 2 + ["ok"]
    assert expired.hits == 2


def test_expired_key_stays_so_until_there_is_another(
    aws: AwsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that keeps its credentials is refused for ever, one with new ones is not."""
    cluster, emr = aws.cluster(), aws.client("emr", own=False)
    aws.fail("expired_token", "*", times=0, access_key="testing")
    for _ in range(2):
        with pytest.raises(ClientError, match="ExpiredTokenException"):
            emr.describe_cluster(ClusterId=cluster)
    for name, value in {**aws.environment(), "AWS_ACCESS_KEY_ID": "renewed"}.items():
        monkeypatch.setenv(name, value)
    renewed = boto3.session.Session().client("emr")
    assert renewed.describe_cluster(ClusterId=cluster)["Cluster"]["Id"] == cluster


def test_fault_chooses_its_request_by_parameters(aws: AwsService) -> None:
    """Only the call that names this step is spoiled."""
    cluster, emr = aws.cluster(), aws.client("emr", own=False)
    ids = emr.add_job_flow_steps(JobFlowId=cluster, Steps=[step("a"), step("b")])["StepIds"]
    aws.fail("denied", "DescribeStep", StepId=ids[1])
    assert emr.describe_step(ClusterId=cluster, StepId=ids[0])["Step"]["Id"] == ids[0]
    with pytest.raises(ClientError, match="AccessDenied"):
        emr.describe_step(ClusterId=cluster, StepId=ids[1])


def test_gate_stops_a_submit_before_or_after_it_is_done(aws: AwsService) -> None:
    """The two crash points around a submit."""
    app, client = aws.application(), aws.client("emr-serverless", own=False)
    with ThreadPoolExecutor() as pool:
        before = aws.gate("StartJobRun")
        asked = pool.submit(start, aws, client, app, "token-1")
        before.wait()
        assert aws.started() == []
        before.release()
        assert asked.result(30)["jobRunId"]
        after = aws.gate("StartJobRun", when="answered")
        asked = pool.submit(start, aws, client, app, "token-2")
        after.wait()
        assert len(aws.started()) == 2
        after.release()
        assert asked.result(30)["jobRunId"]


def test_log_has_what_was_asked_and_answered(aws: AwsService) -> None:
    """Decoded parameters from path, query and body; the reply; what was made; the test's own left out."""
    app, client = aws.application(), aws.client("emr-serverless", own=False)
    run = start(aws, client, app, "token")["jobRunId"]
    client.list_job_runs(applicationId=app, states=["RUNNING", "PENDING"], maxResults=5)
    with pytest.raises(ClientError):
        client.get_job_run(applicationId=app, jobRunId="0nobody")
    started, listed, asked = aws.requests()
    assert (started.service, started.action, started.created) == ("emr-serverless", "StartJobRun", [run])
    assert started.parameters["clientToken"] == "token"
    assert started.parameters["applicationId"] == app
    assert started.parameters["jobDriver"] == {"sparkSubmit": {"entryPoint": "s3://bucket/job.py"}}
    assert started.reply["jobRunId"] == run
    assert listed.parameters == {
        "applicationId": app,
        "states": ["RUNNING", "PENDING"],
        "maxResults": "5",
    }
    assert (asked.status, asked.error) == (404, "ResourceNotFoundException")
    assert next(logged.action for logged in aws.requests(own=True)) == "CreateApplication"
    assert aws.wait_for("ListJobRuns") == [listed]


def test_reset_forgets_jobs_faults_and_requests(aws: AwsService) -> None:
    """The next test begins with nothing."""
    app, client = aws.application(), aws.client("emr-serverless", own=False)
    start(aws, client, app, "token")
    aws.fail("denied", "*", times=0)
    aws.reset()
    assert (aws.requests(own=True), aws.started()) == ([], [])
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        start(aws, client, app, "token")


def test_wish_for_an_unknown_job_is_an_error(aws: AwsService) -> None:
    """A misspelt id doesn't pass in silence."""
    with pytest.raises(ValueError, match="s-NONE"):
        aws.finish("s-NONE")


def test_airflows_connection_leads_here(aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider's hook with the default connection talks to the stand-in, by Airflow's own settings."""
    from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook

    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    app = aws.application()
    hook = EmrServerlessHook(aws_conn_id="aws_default")
    assert hook.conn.get_application(applicationId=app)["application"]["applicationId"] == app
    assert [logged.action for logged in aws.requests()] == ["GetApplication"]


def test_state_outlives_a_killed_client_process(aws: AwsService) -> None:
    """A process that dies after its submit leaves the job where it was."""
    code = (
        "import boto3, os, signal;"
        "boto3.client('emr').add_job_flow_steps(JobFlowId=os.environ['CLUSTER'], Steps=[{'Name': 'a',"
        " 'HadoopJarStep': {'Jar': 'command-runner.jar'}}]);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, **aws.environment(), "CLUSTER": aws.cluster()}
    died = subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    [job] = aws.started()
    assert aws.state(job.id) == "RUNNING"


def test_service_ends_with_the_process_that_owns_it(tmp_path: Path) -> None:
    """However that ends: here by SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        service = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
    psutil.wait_procs([service], 30)
    assert not service.is_running()
