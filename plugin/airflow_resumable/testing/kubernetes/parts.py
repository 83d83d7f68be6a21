# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the parts of the test cluster's control plane are told when they are started: their arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from airflow_resumable.testing.kubernetes.audit import POLICY

_CONTROLLERS = "job,garbagecollector,namespace,podgc,serviceaccount"


def etcd(work_dir: Path, ports: Mapping[str, int]) -> list[str]:
    """Return the arguments of etcd, which keeps its data below `work_dir`."""
    client, peer = (f"http://127.0.0.1:{ports[name]}" for name in ("etcd", "peer"))
    return [
        f"--data-dir={work_dir / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def api_server(
    work_dir: Path, ports: Mapping[str, int], pki: Path, tokens: Path, certificate: Path
) -> list[str]:
    """Write the audit policy and return the arguments of kube-apiserver.

    Args:
        work_dir: Where its audit log goes.
        ports: The ports of the cluster's parts.
        pki: The folder of the keys, to which it adds its own certificate.
        tokens: The file of the users' tokens.
        certificate: By which it knows the node.
    """
    policy = work_dir / "audit-policy.yaml"
    policy.write_text(json.dumps(POLICY), encoding="utf-8")
    return [
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports['api']}",
        "--insecure-port=0",
        f"--cert-dir={pki}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={work_dir / 'audit.log'}",
        "--audit-log-mode=blocking",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={certificate}",
    ]


def controller_manager(kubeconfig: Path, pki: Path, ports: Mapping[str, int]) -> list[str]:
    """Return the arguments of kube-controller-manager."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={_CONTROLLERS}",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        f"--port={ports['controllers']}",
    ]
