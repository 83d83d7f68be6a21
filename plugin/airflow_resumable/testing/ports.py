# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Free TCP ports that stay free until the server they are meant for has started."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST = 10_240
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _below_ephemeral() -> int:
    # The kernel takes the source ports of outgoing connections from this range, so a port in it
    # that is free now may be somebody's source port when the server comes to bind it.
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def is_free(port: int) -> bool:
    """Tell whether a server could bind a TCP port on every IPv4 address of this host.

    Args:
        port: The port number, 1 to 65535.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Pick distinct free TCP ports below the kernel's range for outgoing connections.

    Args:
        count: How many ports to pick.

    Raises:
        OSError: When fewer than `count` ports could be found.
    """
    highest = max(_below_ephemeral(), _LOWEST + 1_000)
    picked: list[int] = []
    candidates = random.SystemRandom().sample(range(_LOWEST, highest), k=min(highest - _LOWEST, 500 + count))
    for port in candidates:
        if len(picked) == count:
            break
        if is_free(port):
            picked.append(port)
    if len(picked) < count:
        raise OSError(
            f"found {len(picked)} free TCP ports of the {count} needed between {_LOWEST} and {highest}"
        )
    return picked


def free_port() -> int:
    """Pick one free TCP port, see `free_ports`."""
    return free_ports(1)[0]
