"""The unix sockets between kubelet and plugin: where they lie, and whether one is still the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeAlias

import grpc.aio

from gaia_plugin.errors import Unusable

LONGEST_PATH: Final = 107
"""Bytes of a unix socket's path; the kernel takes no more."""

Identity: TypeAlias = tuple[int, int, int]

_CHANNEL: Final = (
    # Channels share their connections, and the waits after a failed one, unless told otherwise; with the
    # defaults a plugin would wait up to two minutes after the kubelet is back.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


def plugin_directory(kubelet: Path) -> Path:
    """Return where the kubelet's registration socket and the sockets of plugins lie."""
    return kubelet / "device-plugins"


def registration_socket(kubelet: Path) -> Path:
    """Return the socket that the kubelet takes registrations on."""
    return plugin_directory(kubelet) / "kubelet.sock"


def pod_resources_socket(kubelet: Path) -> Path:
    """Return the socket of the kubelet's PodResources interface."""
    return kubelet / "pod-resources" / "kubelet.sock"


def identity(socket: Path) -> Identity | None:
    """Return what tells this socket from one made anew under its name; None when there is none."""
    try:
        found = os.stat(socket)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def target(socket: Path) -> str:
    """Return `socket` as gRPC names it.

    Raises:
        Unusable: the path is too long for a unix socket.
    """
    length = len(os.fsencode(socket))
    if length > LONGEST_PATH:
        raise Unusable(
            f"{socket} is {length} bytes long; a unix socket's path has at most {LONGEST_PATH}. Give the "
            "kubelet a shorter directory."
        )
    return f"unix:{socket}"


def channel(socket: Path, *, largest_answer: int = 4 << 20) -> grpc.aio.Channel:
    """Return a channel to `socket` that notices quickly when its peer is back.

    Args:
        socket: absolute path.
        largest_answer: bytes of one message that may come back.
    """
    options = (*_CHANNEL, ("grpc.max_receive_message_length", largest_answer))
    return grpc.aio.insecure_channel(target(socket), options=options)
