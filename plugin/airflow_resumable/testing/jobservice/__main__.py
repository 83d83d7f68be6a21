# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of the job service: start, say where, run until told to stop."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NoReturn

from airflow_resumable.testing.jobservice.journal import Journal, JournalError
from airflow_resumable.testing.jobservice.runner import Runner
from airflow_resumable.testing.jobservice.server import Server


class _StartError(RuntimeError):
    """The service can't start; the message is one line with the remedy."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"jobservice: {message}\n")


def _at_least(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    allowed = f"a whole number, {lowest} " + ("or more" if highest is None else f"to {highest}")

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if number < lowest or (highest is not None and number > highest):
            raise argparse.ArgumentTypeError(f"{text!r} is not accepted; allowed: {allowed}")
        return number

    return convert


def _parser() -> _Parser:
    parser = _Parser(
        prog="jobservice",
        description="Runs commands as jobs that outlive their submitter; see the package's documentation.",
    )
    parser.add_argument(
        "--data-dir", required=True, type=Path, help="jobs, logs and the request log; made if missing"
    )
    parser.add_argument(
        "--port", default=0, type=_at_least(0, 65535), help="0, the default, picks a free one"
    )
    parser.add_argument("--port-file", type=Path, help="write the port number here, too, once listening")
    parser.add_argument("--parent-pid", type=_at_least(1), help="end when this process is gone")
    parser.add_argument(
        "--first-id", default=1, type=_at_least(0), help="number of the first job of a new data dir"
    )
    parser.add_argument(
        "--plain-ids", action="store_true", help="job ids are the bare numbers, as JSON integers"
    )
    parser.add_argument("--max-running", type=_at_least(1), help="jobs at once; further ones are QUEUED")
    parser.add_argument(
        "--credential-uses", type=_at_least(1), help="ask for credentials, good for so many requests"
    )
    return parser


def _lock(data_dir: Path) -> IO[str]:
    try:
        (data_dir / "jobs").mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "lock").open("a")
    except OSError as error:
        raise _StartError(
            f"--data-dir {data_dir} can't be written ({error.strerror}): choose another"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise _StartError(
            f"--data-dir {data_dir} is in use by another job service: stop that one or choose another"
        ) from None
    return lock


def _publish(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text + "\n")
        temporary.replace(path)
    except OSError as error:
        raise _StartError(f"{path} can't be written ({error.strerror}): choose another place") from error


def _listen(options: argparse.Namespace, journal: Journal, runner: Runner) -> Server:
    try:
        return Server(options.port, journal, runner, credential_uses=options.credential_uses)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = f"port {options.port} of 127.0.0.1 is in use: choose another --port, or 0 for a free one"
        else:
            remedy = (
                f"port {options.port} of 127.0.0.1 can't be used ({error.strerror}): choose another --port"
            )
        raise _StartError(remedy) from error


def _watch_process(pid: int, wake_write: int) -> None:
    try:
        # Unlike PR_SET_PDEATHSIG, this doesn't fire when only the thread that started us ends.
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):
        was_parent = os.getppid() == pid
        while _is_there(pid) and not (was_parent and os.getppid() != pid):
            time.sleep(0.2)
    else:
        select.select([watched], [], [])
    os.write(wake_write, b"x")


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _serve(options: argparse.Namespace) -> None:
    data_dir: Path = options.data_dir.absolute()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    # A handler in Python would not run if the signal came just before the main thread began to wait.
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with _lock(data_dir):
        try:
            journal = Journal(
                data_dir / "journal.sqlite", first_id=options.first_id, plain_ids=options.plain_ids
            )
        except JournalError as error:
            raise _StartError(f"{error}: choose another --data-dir") from error
        runner = Runner(journal, data_dir / "jobs", max_running=options.max_running)
        server = _listen(options, journal, runner)
        runner.recover()
        try:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            if options.port_file is not None:
                _publish(options.port_file, str(server.server_address[1]))
            _publish(data_dir / "url", server.url)
            print(server.url, flush=True)
            if options.parent_pid is not None:
                threading.Thread(
                    target=_watch_process, args=(options.parent_pid, wake_write), daemon=True
                ).start()
            os.read(wake_read, 1)
        finally:
            runner.close()
            with contextlib.suppress(FileNotFoundError):
                (data_dir / "url").unlink()
            journal.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until SIGTERM, SIGINT or the end of ``--parent-pid``; return the exit status.

    Args:
        arguments: The command line; that of the process by default.
    """
    options = _parser().parse_args(arguments)
    try:
        _serve(options)
    except _StartError as error:
        print(f"jobservice: {error}", file=sys.stderr)
        return 2
    return 0


def run() -> NoReturn:
    """Run the service as the whole of this process."""
    status = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # Threads may sit in held requests; the interpreter's own way out would trip over them.
    os._exit(status)


if __name__ == "__main__":
    run()
