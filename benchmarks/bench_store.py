# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an undisturbed job asks of the task state store and of the service, counted."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.memory_store import InMemoryTaskStateStore
from tests.attempts import TaskInstance, until_released


def main() -> None:
    """Run one job whose status changes once while it is watched, and print the counts."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place, JobService(Path(place) / "service") as service:
        gate = Path(place) / "gate"
        instance = TaskInstance(service.url, Path(place) / "store", until_released(gate))
        store = InMemoryTaskStateStore()

        class Releases(instance.operator_class):  # type: ignore[name-defined,misc]
            def get_job_status(self, external_id: object, context: object) -> str:
                status = str(super().get_job_status(external_id, context))
                gate.touch()
                return status

        instance.operator_class = Releases
        instance.attempt(store=store)
        writes, reads = store.count("set") + store.count("delete"), store.count("get")
        verbs = {verb: len(service.requests(verb)) for verb in ("submit", "find", "status", "cancel")}
    print("store calls of one undisturbed job, its one status change (1 read, 1 write) included")
    print(f"  writes {writes} (limit 5 and the status change), reads {reads} (limit 5 and the status change)")
    print("requests to the service: " + ", ".join(f"{verb} {count}" for verb, count in verbs.items()))
    sys.exit(writes > 6 or reads > 6)


if __name__ == "__main__":
    main()
