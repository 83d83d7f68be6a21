# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""EMR, EMR Serverless and EMR on EKS on one machine, for tests: moto, mended, with faults and a log.

with AwsService() as aws:
os.environ |= aws.environment()
cluster = aws.cluster()
held = aws.gate("AddJobFlowSteps", when="answered")
...                                     # a task process adds a step and dies at the gate
[job] = aws.started()
aws.finish(job.id)
assert aws.cancels() == []
"""

from __future__ import annotations

from airflow_resumable.testing.aws.service import ROLE, AwsService, Cancel, Started, step

__all__ = ["ROLE", "AwsService", "Cancel", "Started", "step"]
