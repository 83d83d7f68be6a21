# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The crash points and their controller, with real processes and no Airflow."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from airflow_resumable.jobs import crashpoints
from airflow_resumable.testing.crash import CrashController, CrashError, Event
from airflow_resumable.testing.processes import Managed, ProcessTree

HEAD = """
import os, signal, subprocess, sys
from airflow_resumable.jobs.crashpoints import reach
def say(text): print(text, flush=True)
"""


@pytest.fixture
def crash() -> Iterator[CrashController]:
    with CrashController() as controller:
        yield controller


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ProcessTree]:
    with ProcessTree(tmp_path / "processes") as tree:
        yield tree


def start(tree: ProcessTree, crash: CrashController, code: str) -> Managed:
    """Start a Python process that runs `code` and reports its crash points to `crash`."""
    source = HEAD + textwrap.dedent(code)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **crash.env}
    return tree.start("task", [sys.executable, "-c", source], env=env, cwd=tree.logs)


def told(process: Managed) -> list[str]:
    return process.log.read_text().split()


def test_unset_points_do_nothing() -> None:
    """Without the variable a point is passed at once, whatever it is told, and no socket is made."""
    code = """
    import sys
    from airflow_resumable.jobs.crashpoints import reach
    sys.addaudithook(lambda event, _: event.startswith("socket.") and sys.exit(f"{event} was called"))
    reach("after_accept", dag_id="d")
    """
    env = {name: value for name, value in os.environ.items() if name != crashpoints.SOCKET_VARIABLE}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, check=False)

    assert done.returncode == 0


def test_the_module_needs_no_airflow() -> None:
    """Crash points may be imported where importing Airflow would cost seconds."""
    code = "import sys, airflow_resumable.jobs.crashpoints; sys.exit('airflow' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False)

    assert done.returncode == 0


def test_a_point_without_a_rule_is_passed_and_recorded(tree: ProcessTree, crash: CrashController) -> None:
    """Every point that is reached is in the record, in order, with the process and what it told."""
    process = start(
        tree,
        crash,
        """
        facts = dict(dag_id="d", run_id="r", task_id="t", map_index=2, try_number=3)
        reach("before_intent", **facts)
        reach("after_intent", **facts, id=object())
        """,
    )

    assert process.wait(20) == 0
    assert [(one.point, one.action) for one in crash.events] == [
        ("before_intent", "go"),
        ("after_intent", "go"),
    ]
    event = crash.events[0]
    assert (event.pid, event.dag_id, event.run_id, event.task_id) == (process.pid, "d", "r", "t")
    assert (event.map_index, event.try_number, event.ppid) == (2, 3, tree.keeper_pid)
    assert crash.events[1].facts["id"].startswith("<object")


def test_what_the_task_does_not_tell_is_taken_from_airflows_variables(
    tree: ProcessTree, crash: CrashController
) -> None:
    """A caller without a context is matched by the variables that Airflow exports to a task."""
    crash.on("mid_poll", "exit", dag_id="d", run_id="r", task_id="t", try_number=2)
    process = start(
        tree,
        crash,
        """
        os.environ.update(AIRFLOW_CTX_DAG_ID="d", AIRFLOW_CTX_DAG_RUN_ID="r", AIRFLOW_CTX_TASK_ID="t",
                          AIRFLOW_CTX_TRY_NUMBER="2")
        reach("mid_poll")
        """,
    )

    assert process.wait(20) == 9


def test_a_killed_task_never_passes_its_point(tree: ProcessTree, crash: CrashController) -> None:
    """SIGKILL meets the process while it waits in the point."""
    crash.on("after_accept", "kill_task")
    process = start(tree, crash, 'say("before"); reach("after_accept", try_number=1); say("after")')

    assert process.wait(20) == -signal.SIGKILL
    assert told(process) == ["before"]
    assert crash.wait("after_accept").action == "kill_task"


def test_a_rule_applies_to_its_task_its_try_and_so_often(tree: ProcessTree, crash: CrashController) -> None:
    """Another task, another try and a used-up rule let the process go on."""
    crash.on("mid_poll", "raise:no", task_id="mine", try_number=2, times=2)
    process = start(
        tree,
        crash,
        """
        for task, number in [("other", 2), ("mine", 1), ("mine", 2), ("mine", 2), ("mine", 2)]:
            try:
                reach("mid_poll", task_id=task, try_number=number)
                say("passed")
            except RuntimeError as error:
                say(error)
        """,
    )

    assert process.wait(20) == 0
    assert told(process) == ["passed", "passed", "no", "no", "passed"]


SUPERVISOR = """
if sys.argv[1:] == ["task"]:
    reach("after_intent", try_number=1)
    say("task-went-on")
    sys.exit()
code = open(f"/proc/{os.getpid()}/cmdline").read().split(chr(0))[2]
child = subprocess.Popen([sys.executable, "-c", code, "task"], process_group=0)
say(f"task-ended-{child.wait()}")
"""


def test_an_orphan_can_be_held_and_then_goes_on(tree: ProcessTree, crash: CrashController) -> None:
    """The supervisor dies, its task stays at the point until it is released, and then runs on."""
    crash.on("after_intent", "kill_supervisor", hold=True)
    supervisor = start(tree, crash, SUPERVISOR)
    event = crash.wait("after_intent")

    assert supervisor.wait(20) == -signal.SIGKILL
    assert event.ppid == supervisor.pid
    task = psutil.Process(event.pid)
    assert task.is_running()
    assert told(supervisor) == []

    assert crash.release(event) == 1
    task.wait(20)
    assert told(supervisor) == ["task-went-on"]


def test_task_and_supervisor_die_together(tree: ProcessTree, crash: CrashController) -> None:
    """Neither the supervisor's report nor the task's next line is ever written."""
    crash.on("after_intent", "kill_both")
    supervisor = start(tree, crash, SUPERVISOR)
    event = crash.wait("after_intent")

    assert supervisor.wait(20) == -signal.SIGKILL
    tree.stop(supervisor)
    assert not psutil.pid_exists(event.pid)
    assert told(supervisor) == []


HANDLER = """
def handler(*_):
    say("handled-in-" + sys._getframe(1).f_code.co_name)
    {then}
signal.signal(signal.SIGTERM, handler)
try:
    reach("mid_poll", try_number=1)
    say("passed")
    signal.pause()
except ({error}) as error:
    say(type(error).__name__)
"""


@pytest.mark.parametrize("error", ["SystemExit", "TimeoutError"])
def test_a_signal_handler_that_raises_ends_the_waiting(
    error: str, tree: ProcessTree, crash: CrashController
) -> None:
    """What a SIGTERM handler raises comes out of the point, an OSError too."""
    crash.on("mid_poll", "term_task", hold=True)
    process = start(tree, crash, HANDLER.format(then=f"raise {error}('told')", error=error))

    assert process.wait(20) == 0
    assert told(process) == ["handled-in-_ask", error]


def test_a_signal_handler_that_returns_does_not_end_the_waiting(
    tree: ProcessTree, crash: CrashController
) -> None:
    """The process stays at the point after such a signal, until it is released."""
    crash.on("mid_poll", "term_task", hold=True)
    process = start(tree, crash, HANDLER.format(then="reach('before_outcome')", error="OSError"))
    event = crash.wait("mid_poll")
    crash.wait("before_outcome")

    assert told(process) == ["handled-in-_ask"]
    crash.release(event)
    assert process.wait(0.0) is None
    process.send(signal.SIGKILL)


def test_a_terminated_task_meets_the_signal_outside_of_the_point(
    tree: ProcessTree, crash: CrashController
) -> None:
    """Without hold the task has left the socket when its SIGTERM comes."""
    crash.on("mid_poll", "term_task")
    process = start(tree, crash, HANDLER.format(then="raise SystemExit", error="SystemExit"))

    assert process.wait(20) == 0
    assert "handled-in-_ask" not in told(process)
    assert told(process)[-1] == "SystemExit"


def test_a_stopped_task_goes_on_when_resumed(tree: ProcessTree, crash: CrashController) -> None:
    """SIGSTOP freezes the process in the point and SIGCONT lets it pass."""
    crash.on("mid_poll", "stop_task")
    process = start(tree, crash, 'reach("mid_poll", try_number=1); say("after")')
    event = crash.wait("mid_poll")

    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    crash.resume(event)
    assert process.wait(20) == 0
    assert told(process) == ["after"]


def test_a_callable_decides_by_what_it_sees(tree: ProcessTree, crash: CrashController) -> None:
    """A callable gets the event, its answer is sent and its name is in the record."""

    def third_time(event: Event) -> str | None:
        return "exit" if event.facts["round"] == 3 else None

    crash.on("mid_poll", third_time, times=9)
    process = start(tree, crash, 'for n in range(1, 9): reach("mid_poll", try_number=1, round=n); say(n)')

    assert process.wait(20) == 9
    assert told(process) == ["1", "2"]
    assert {event.action for event in crash.events} == {"third_time"}


def test_a_failing_callable_fails_the_test_not_the_task(tree: ProcessTree, crash: CrashController) -> None:
    """The task goes on, and the controller raises what went wrong to whoever asks next."""

    def broken(event: Event) -> str:
        raise KeyError("nothing here")

    crash.on("mid_poll", broken)
    process = start(tree, crash, 'reach("mid_poll", try_number=1)')

    assert process.wait(20) == 0
    with pytest.raises(CrashError, match="broken at mid_poll raised KeyError: 'nothing here'"):
        crash.wait("mid_poll", count=2)


def test_a_stranger_is_never_killed(tree: ProcessTree, crash: CrashController) -> None:
    """A process that does not descend from the harness gets no signal, even if a rule matches."""
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        path = crash.socket_path.with_name("stranger")
        listener.bind(str(path))
        listener.listen()
        code = HEAD + "reach('mid_poll', try_number=1); import socket; s = socket.socket(socket.AF_UNIX); "
        code += "s.connect(sys.argv[1]); s.sendall(b'alive')"
        crash.on("mid_poll", "kill_task")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **crash.env}
        # The shell ends at once, and init, or whoever adopts for this session, gets the process.
        command = [
            *("setsid", "--fork", sys.executable, "-c", code, str(path)),
        ]
        subprocess.run(command, env=env, check=True)
        listener.settimeout(20)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(5) == b"alive"
        path.unlink()

    with pytest.raises(CrashError, match="no task or supervisor that was started under this harness"):
        crash.reset()


def test_a_keeper_is_never_killed_as_a_supervisor(tree: ProcessTree, crash: CrashController) -> None:
    """A task whose supervisor is dead is a child of the keeper, which every other process depends on."""
    crash.on("mid_poll", "kill_supervisor")
    process = start(tree, crash, 'reach("mid_poll", try_number=1)')

    assert process.wait(20) == 0
    with pytest.raises(CrashError, match="it got no SIGKILL"):
        crash.reset()


def test_a_missing_harness_is_logged_and_the_task_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that outlives its harness must not hang at its next point."""
    monkeypatch.setattr(crashpoints, "_socket_path", str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING):
        crashpoints.reach("after_id")

    assert "crash point after_id: no harness answers" in caplog.text
    assert "going on" in caplog.text


def test_a_harness_that_hangs_up_is_logged_and_the_task_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A harness that dies while a task waits in a point lets it go."""
    with CrashController() as controller:
        path = controller.socket_path
        controller.on("after_id", "hold", try_number=None)
        monkeypatch.setattr(crashpoints, "_socket_path", str(path))
        waiting = threading.Thread(target=crashpoints.reach, args=("after_id",))
        with caplog.at_level(logging.WARNING):
            waiting.start()
            controller.wait("after_id")
            for connection in list(controller._connections):
                connection.shutdown(socket.SHUT_RDWR)
            waiting.join(20)

    assert not waiting.is_alive()
    assert "crash point after_id: the harness" in caplog.text
    assert "hung up" in caplog.text


def test_unknown_names_are_refused_with_the_known_ones(
    crash: CrashController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt point or action would otherwise be a test that can't fail."""
    with pytest.raises(
        ValueError, match="'after_acept'; the points are before_intent, after_intent, after_acc"
    ):
        crash.on("after_acept", "kill_task")
    with pytest.raises(ValueError, match="action='kil_task' is not known; use go, hold, exit, kill_task"):
        crash.on("after_accept", "kil_task")
    with pytest.raises(ValueError, match="times=0 must be 1 or more"):
        crash.on("after_accept", "kill_task", times=0)
    monkeypatch.setattr(crashpoints, "_socket_path", str(crash.socket_path))
    with pytest.raises(ValueError, match="'after_acept'"):
        crashpoints.reach("after_acept")


def test_waiting_in_vain_tells_what_was_seen(tree: ProcessTree, crash: CrashController) -> None:
    """The error names what was waited for and lists the events there were."""
    process = start(tree, crash, 'reach("after_id", task_id="t", try_number=1)')
    assert process.wait(20) == 0

    with pytest.raises(TimeoutError, match=r"point=after_id, task_id=other(?s:.*)task_id='t'"):
        crash.wait("after_id", task_id="other", timeout=0.01)


def test_a_socket_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """The kernel's limit is met before a test run starts, with the remedy."""
    with pytest.raises(ValueError, match="a Unix socket takes 107; leave socket_path out"):
        CrashController(tmp_path / ("x" * 100) / "socket")
