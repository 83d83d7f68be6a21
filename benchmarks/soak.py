# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of disturbances with real processes; see `airflow_resumable.testing.soak`.

``make soak`` runs all of it and writes the report; ``make soak SOAK="--only file --seeds 1-50"`` a part.
The exit status is 1 when a schedule breaks section 1 of the protocol, 2 when the command line is wrong.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

# Not in the attempts' processes, which import this module too: they inherit the environment.
if __name__ == "__main__":
    # Before anything imports Airflow, which reads its configuration on import.
    settings = ("AIRFLOW__", "AIRFLOW_HOME", "AIRFLOW_CONFIG")
    for name in [one for one in os.environ if one.startswith(settings)]:
        del os.environ[name]
    folder = tempfile.mkdtemp(prefix="airflow-resumable-soak-")
    os.environ["AIRFLOW_HOME"] = f"{folder}/home"
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    from airflow_resumable.testing.soak.command import main

    kept = True
    try:
        status = main(sys.argv[1:], folder)
        kept = status != 0
    finally:
        if kept:
            print(f"Kept {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(status)
