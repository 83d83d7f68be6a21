# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is used of the provider's Spark operator and hook beyond their documented interface."""

from __future__ import annotations

from collections.abc import Sequence

TESTED_WITH = ("6.3.4",)
"""Versions of apache-airflow-providers-apache-spark that the tests run against."""

OPERATOR_CLASS = ("_get_hook",)
OPERATOR_SELF = ("_hook", "_java_class", "_status_poll_interval")
HOOK_CLASS = (
    "_build_spark_submit_command",
    "_mask_cmd",
    "_process_spark_submit_log",
    "_run_post_submit_commands",
    "_submit_log_tail",
    "_validate_yarn_track_via_rm_api_config",
)
HOOK_SELF = (
    "_conf",
    "_conn_id",
    "_connection",
    "_driver_id",
    "_driver_status",
    "_should_track_driver_status",
)


def check(parent: object, names: Sequence[str]) -> None:
    """Make sure that the installed provider has what is needed of it.

    Args:
        parent: A class, or an object once it was made.
        names: The attributes.

    Raises:
        ImportError: Names what is missing, and the versions that have it.
    """
    missing = [name for name in names if not hasattr(parent, name)]
    if missing:
        owner = parent.__name__ if isinstance(parent, type) else type(parent).__name__
        raise ImportError(
            f"{owner} of the installed apache-airflow-providers-apache-spark has no "
            f"{', '.join(missing)}, which ResumableSparkSubmitOperator needs; tested with "
            f"{', '.join(TESTED_WITH)}: install one of these, or a newer airflow-resumable"
        )
