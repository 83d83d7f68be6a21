# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Process trees end with their harness, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.ports import free_ports, is_free
from airflow_resumable.testing.processes import Managed, ProcessTree

# A component with a child in another process group (an executor's task), whose child was orphaned, and,
# when asked, a daemon that left the session. Each writes its pid to the file and waits for ever.
NEST = """
import os, signal, sys
def wait(name):
    with open(sys.argv[1], "a") as file:
        file.write(f"{name} {os.getpid()}\\n")
    while True:
        signal.pause()
def fork(work):
    if os.fork() == 0:
        work()
        os._exit(0)
def task():
    os.setpgid(0, 0)
    fork(lambda: wait("orphan"))
def daemon():
    os.setsid()
    fork(lambda: wait("daemon"))
def stubborn():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wait("stubborn")
fork(task)
fork(stubborn)
if "daemon" in sys.argv:
    fork(daemon)
wait("component")
"""

HARNESS = """
import os, signal, sys, time
from pathlib import Path
from airflow_resumable.testing.processes import ProcessTree

home, ending, *nest = sys.argv[1:]
tree = ProcessTree(Path(home, "processes"))
def start():
    Path(tree.scratch("x-"), "file").touch()
    tree.start("nest", [sys.executable, *nest], env=dict(os.environ), cwd=Path(home))
    file = Path(nest[1])
    while not file.exists() or len(file.read_text().splitlines()) < 4:
        time.sleep(0.01)
    print("started", tree.keeper_pid, flush=True)
if ending == "return":
    with tree:
        start()
    os._exit(0)
elif ending == "raise":
    with tree:
        start()
        raise KeyError
elif ending == "fork":
    start()
    if os.fork() == 0:
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
else:
    start()
    if ending == "wait":
        signal.pause()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ProcessTree]:
    with ProcessTree(tmp_path / "processes") as tree:
        yield tree


@pytest.fixture
def nest(tmp_path: Path) -> Path:
    source = tmp_path / "nest.py"
    source.write_text(NEST)
    return source


def pids(file: Path) -> dict[str, int]:
    return {name: int(pid) for name, pid in map(str.split, file.read_text().splitlines())}


def wait_until_gone(numbers: Iterable[int]) -> None:
    processes = []
    for pid in numbers:
        # It may go at this very moment, which is what is waited for.
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


@pytest.mark.parametrize(
    ("ending", "number", "code"),
    [
        ("return", None, 0),
        ("raise", None, 1),
        ("end", None, 0),
        ("wait", signal.SIGINT, -signal.SIGINT),
        ("wait", signal.SIGTERM, -signal.SIGTERM),
        ("wait", signal.SIGKILL, -signal.SIGKILL),
        ("fork", None, -signal.SIGKILL),
    ],
)
def test_nothing_outlives_the_harness(
    ending: str, number: signal.Signals | None, code: int, tmp_path: Path, nest: Path
) -> None:
    """The component, its orphan, a deaf child and a daemon are gone, whatever ended the harness."""
    file = tmp_path / "pids"
    command = [sys.executable, "-c", HARNESS, str(tmp_path), ending, str(nest), str(file), "daemon"]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as harness:
        try:
            assert harness.stdout is not None
            _, keeper = harness.stdout.readline().split()
            if number is not None:
                assert all(psutil.Process(pid).is_running() for pid in pids(file).values())
                harness.send_signal(number)
            assert harness.wait(30) == code
            if ending in ("return", "raise", "end"):
                assert not any(map(psutil.pid_exists, pids(file).values()))
            assert set(pids(file)) == {"component", "orphan", "stubborn", "daemon"}
            wait_until_gone([*pids(file).values(), int(keeper)])
            assert list(tmp_path.glob("x-*")) == []
        finally:
            # The harness's own fork, which holds its end of the keeper's socket.
            with suppress(ProcessLookupError):
                os.killpg(harness.pid, signal.SIGKILL)


def test_a_killed_keeper_leaves_nothing_to_a_living_harness(tmp_path: Path, nest: Path) -> None:
    """Should even the keeper be killed, the kernel kills its children at once and close finds theirs."""
    tree = ProcessTree(tmp_path / "processes")
    started = start_nest(tree, nest, tmp_path / "pids")
    assert tree.keeper_pid is not None
    os.kill(tree.keeper_pid, signal.SIGKILL)

    assert started.wait(20) is None
    assert not started.alive
    wait_until_gone([started.pid])
    tree.close()

    wait_until_gone(pids(tmp_path / "pids").values())


def start_nest(tree: ProcessTree, nest: Path, file: Path, *options: str) -> Managed:
    started = tree.start(
        "nest", [sys.executable, nest, file, *options], env=dict(os.environ), cwd=file.parent
    )
    expected = 3 + len(options)
    while not file.exists() or len(file.read_text().splitlines()) < expected:
        tree.pause(0.01, started)
        assert started.alive, started.tail()
    return started


def test_one_component_is_stopped_with_its_orphans_and_no_other(
    tree: ProcessTree, tmp_path: Path, nest: Path
) -> None:
    """Stopping a component takes its whole session, also when its leader was killed before."""
    one = start_nest(tree, nest, tmp_path / "one")
    other = start_nest(tree, nest, tmp_path / "other")
    one.send(signal.SIGKILL)
    assert one.wait(20) == -signal.SIGKILL
    orphans = [pid for name, pid in pids(tmp_path / "one").items() if name != "component"]
    assert len(orphans) == 2
    assert all(map(psutil.pid_exists, orphans))

    tree.stop(one)

    assert not any(map(psutil.pid_exists, orphans))
    assert all(map(psutil.pid_exists, pids(tmp_path / "other").values()))
    assert other.alive


def test_a_polite_signal_comes_first_where_it_is_asked_for(tree: ProcessTree, tmp_path: Path) -> None:
    """A program that cleans up after SIGTERM gets the time to do so."""
    code = """
    import signal, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("cleaned"))
    print("ready", flush=True)
    signal.pause()
    """
    started = tree.start(
        "polite",
        [sys.executable, "-c", textwrap.dedent(code)],
        env=dict(os.environ),
        cwd=tmp_path,
        stop_signal=signal.SIGTERM,
    )
    while "ready" not in started.tail():
        tree.pause(0.01, started)

    tree.stop(started)

    assert started.returncode == 1
    assert started.tail().split() == ["ready", "cleaned"]


def test_run_returns_output_and_code(tree: ProcessTree, tmp_path: Path) -> None:
    """A program that ends by itself gives its two outputs and its code."""
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = tree.run([sys.executable, "-c", code], env=dict(os.environ), cwd=tmp_path, timeout=30)

    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_run_that_takes_too_long_is_ended(tree: ProcessTree, tmp_path: Path) -> None:
    """The error has the output so far, and the process is gone."""
    code = "import signal; print('waiting', flush=True); signal.pause()"
    with pytest.raises(StackError, match=r"did not end within 2 s:\nwaiting"):
        tree.run([sys.executable, "-c", code], env=dict(os.environ), cwd=tmp_path, timeout=2)

    assert tree.members() == []


def test_a_program_that_is_not_there_is_named(tree: ProcessTree, tmp_path: Path) -> None:
    """The keeper's error comes back to the caller."""
    with pytest.raises(StackError, match=r"no-such-program.*FileNotFoundError"):
        tree.start("x", ["/no-such-program"], env={}, cwd=tmp_path)


def test_a_closed_tree_can_be_closed_again(tree: ProcessTree) -> None:
    """Closing twice is harmless: a block's end after an explicit close."""
    tree.close()
    tree.close()

    assert tree.keeper_pid is None


def test_ports_are_free_distinct_and_no_source_ports() -> None:
    """Picked ports can be bound, and lie below those the kernel gives to outgoing connections."""
    picked = free_ports(20)

    assert len(set(picked)) == 20
    assert all(is_free(port) for port in picked)
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(picked) < lowest
