"""Where metrics are served: what can be written, and what is said when it cannot be had."""

from __future__ import annotations

import socket

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.metrics.address import Address, address_of, listen, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9478", Address("", 9478)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535)),
        ("[::1]:9478", Address("::1", 9478)),
        ("localhost:80", Address("127.0.0.1", 80)),
        (" :9478 ", Address("", 9478)),
        ("off", None),
        ("OFF", None),
    ],
)
def test_an_address_is_read(text: str, address: Address | None) -> None:
    assert parse_address(text) == address
    if address is not None:
        assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "9478", "9478:", ":x", ":-1", ":65536", ":99999999999999999999", ":1e3", ":٣", ":+1", ": 1",
        "example.org:9478", "127.0.0.1", "::1:9478", "[127.0.0.1]:1", "[::1]", "[::1:1", "300.0.0.1:1",
        "a b:1", "http://127.0.0.1:9478", "/run/metrics.sock", "none", "127.0.0.1:9478:1",
        "[fe80::1%eth0:1", "\x00:1",
    ],
)  # fmt: skip
def test_what_is_none_is_told_how_one_is_written(text: str) -> None:
    with pytest.raises(Unusable, match=r"is no address for metrics.*Write HOST:PORT"):
        address_of(text)


def test_all_addresses_take_both_families() -> None:
    with listen(Address("", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 10):
            pass
        if socket.has_dualstack_ipv6():
            with socket.create_connection(("::1", port), 10):
                pass


def test_an_address_that_is_taken_is_said() -> None:
    with listen(Address("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            Unusable, match=rf"served at 127.0.0.1:{port}: Address already in use. Give another"
        ):
            listen(Address("127.0.0.1", port))


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_machine_is_said(host: str) -> None:
    with pytest.raises(Unusable, match="Metrics cannot be served at"):
        listen(Address(host, 9478))
