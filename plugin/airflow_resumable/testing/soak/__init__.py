# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of disturbances with real processes, judged by section 1 of the job protocol.

A seed is a `schedule`; `file_run` carries it out on a task state store in files, `stack_run` on a real
Airflow; both leave a `history`, which `laws` judges; `report` sums up.
"""

from __future__ import annotations
