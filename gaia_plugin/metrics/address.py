"""Where metrics are served: an address as people write it, and the socket that listens there."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Final, NamedTuple

from gaia_plugin.errors import Unusable

OFF: Final = "off"
_BACKLOG: Final = 128
_WANTED: Final = "Write HOST:PORT with an IP address of this machine, :PORT for all of them, or off"


class Address(NamedTuple):
    """An IP address and a port. An empty host means every address of the machine, port 0 any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Return the address that `text` names; None for ``off``.

    Raises:
        ValueError: it is none; its text says how one is written, without a full stop.
    """
    stripped = text.strip()
    if stripped.lower() == OFF:
        return None
    host, colon, port = stripped.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(
            f"{text[:60]!r} is no address for metrics: the port is a number up to 65535. {_WANTED}"
        )
    if host == "localhost":
        host = "127.0.0.1"
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # a name could mean another machine tomorrow, and asking for it can take long
    if bare and not _is_ip(bare, bracketed=bare != host):
        raise ValueError(
            f"{text[:60]!r} is no address for metrics: {host[:60]!r} is no IP address. {_WANTED}"
        )
    return Address(bare, int(port))


def address_of(text: str) -> Address | None:
    """Return what `parse_address` does, for who tells people.

    Raises:
        Unusable: it is none; the sentence says how one is written.
    """
    try:
        return parse_address(text)
    except ValueError as error:
        raise Unusable(f"{error}.") from None


def _is_ip(host: str, *, bracketed: bool) -> bool:
    try:
        return (ipaddress.ip_address(host).version == 6) == bracketed
    except ValueError:
        return False


def _why(error: OSError) -> str:
    # what asyncio and socket add to it names the address once more
    return str(error) if error.errno is None else os.strerror(error.errno)


def listen(address: Address) -> socket.socket:
    """Return a socket that listens at `address`.

    Raises:
        Unusable: nobody can listen there, and why.
    """
    both = not address.host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (address.host, address.port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
    except OSError as error:
        raise Unusable(
            f"Metrics cannot be served at {address}: {_why(error)}. Give another address, or off."
        ) from None
    listener.setblocking(False)
    return listener
