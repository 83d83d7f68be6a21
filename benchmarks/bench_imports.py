# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What importing this package costs on top of what a Dag imports anyway, as ratios in one run.

Each pair is imported one after the other in the same fresh interpreter, timed by its own clock, so that
the second figure is what ours adds; medians over several interpreters. The limits are the project's own.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from importlib.util import find_spec

ROUNDS = 9

_MEASURE = """
import time
{before}
start = time.perf_counter()
{baseline}
between = time.perf_counter()
{ours}
end = time.perf_counter()
print((between - start) * 1000, (end - between) * 1000)
"""

MIXIN = "from {0} import ResumableJobMixin"
SPARK = "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator"

# what, set-up that isn't timed, baseline, ours, limit in ms
PAIRS = [
    ("airflow_resumable.sdk over airflow.sdk", "", "import airflow.sdk", "import airflow_resumable.sdk", 50),
    (
        "its ResumableJobMixin over Airflow's",
        "",
        MIXIN.format("airflow.sdk"),
        MIXIN.format("airflow_resumable.sdk"),
        50,
    ),
    (
        # Used as a library Airflow loads no policies, so ours isn't imported by `import airflow` itself.
        "the policy module over import airflow",
        "import os; os.environ['_AIRFLOW__AS_LIBRARY'] = '1'",
        "import airflow, airflow.policies",
        "import airflow_resumable.integration.policy",
        5,
    ),
    (
        "the Spark operator over the provider's",
        "",
        SPARK,
        "from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator",
        50,
    ),
]


def milliseconds(before: str, baseline: str, ours: str) -> tuple[float, float]:
    """Time the two imports in a fresh interpreter."""
    code = _MEASURE.format(before=before, baseline=baseline, ours=ours)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{code}\n{done.stderr}")
    first, second = done.stdout.split()[-2:]
    return float(first), float(second)


def main() -> None:
    """Print a line per pair; exit status 1 when a limit is broken."""
    broken = False
    print(f"{'import':42} {'baseline':>11} {'ours adds':>10} {'ratio':>7} {'limit':>8}")
    for what, before, baseline, ours, limit in PAIRS:
        if "Spark" in what and find_spec("airflow.providers.apache") is None:
            print(f"{what:42} skipped: install airflow-resumable[spark]")
            continue
        # The first round also compiles what isn't compiled yet.
        pairs = [milliseconds(before, baseline, ours) for _ in range(ROUNDS + 1)][1:]
        base, adds = (statistics.median(column) for column in zip(*pairs, strict=True))
        broken |= adds > limit
        verdict = "" if adds <= limit else "  OVER THE LIMIT"
        print(f"{what:42} {base:8.1f} ms {adds:7.1f} ms {(base + adds) / base:7.3f} {limit:5} ms{verdict}")
    sys.exit(broken)


if __name__ == "__main__":
    main()
