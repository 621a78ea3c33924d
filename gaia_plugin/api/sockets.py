"""Unix sockets by path, also where the path is longer than the 107 bytes that fit into an address.

A long path is reached through an open directory: ``/proc/self/fd/<fd>/name`` is short.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

LONGEST_ADDRESS: Final = 107
"""Bytes of a path in ``sockaddr_un`` without the closing zero."""


@contextmanager
def _address(path: Path) -> Iterator[str]:
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect(path: Path, timeout: float | None) -> socket.socket:
    """Return a connection to the socket at `path`; `timeout` in seconds, for every step.

    Raises:
        OSError: nobody listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        with _address(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def bind(path: Path, mode: int = 0o600) -> socket.socket:
    """Return a socket bound at `path` with that mode, in place of a dead one that may lie there.

    The caller holds the lock of the state directory, so nobody can be listening at `path`. Between
    bind and chmod nobody can connect, because nothing listens yet.

    Raises:
        OSError: the directory is missing or not writable.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        with _address(path) as address:
            listener.bind(address)
        path.chmod(mode)
    except BaseException:
        listener.close()
        raise
    return listener
