"""Names of slots and UUIDs of cards."""

from __future__ import annotations

import re
import struct
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.slots.names import safe_name, slot_name, slot_owner
from gaia_plugin.slots.uuids import uuid_bytes, uuid_text, uuid_words

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize(
    ("owner", "server", "name"),
    [
        ("alice", "", "alice"),
        ("alice", "lab", "alice--lab"),
        ("a-b", "c-d", "a-b--c-d"),
        ("a--b", "", "a-~2Db"),
        ("-a", "-", "~2Da--~2D"),
        ("a.b@c.org", "", "a.b~40c.org"),
        ("..", "", "~2E."),
        ("../etc", "", "~2E.~2Fetc"),
        ("~", "", "~7E"),
        ("Ä", "", "~C3~84"),
    ],
)
def test_names_of_slots(owner: str, server: str, name: str) -> None:
    assert slot_name(owner, server) == name
    assert slot_owner(name) == (owner, server)


@given(NAMES.filter(bool), NAMES)
def test_every_name_is_safe_and_reads_back(owner: str, server: str) -> None:
    name = slot_name(owner, server)
    assert slot_owner(name) == (owner, server)
    assert safe_name(name) == name
    assert quote(name, safe="") == name
    assert not name.startswith(".")
    assert re.fullmatch(r"[A-Za-z0-9_.~-]{1,200}", name)


@given(st.text("a-~.2D", min_size=1, max_size=8))
def test_what_is_no_name_is_refused(text: str) -> None:
    try:
        owner, server = slot_owner(text)
    except ValueError:
        return
    assert slot_name(owner, server) == text


@pytest.mark.parametrize(("owner", "server"), [("", ""), ("", "lab"), ("x" * 300, ""), ("é" * 60, "")])
def test_names_that_make_no_slot(owner: str, server: str) -> None:
    with pytest.raises(Refusal) as caught:
        slot_name(owner, server)
    assert caught.value.code == Code.BAD_REQUEST


@pytest.mark.parametrize("name", ["", ".", "..", ".gone-a", "a/b", "a\0", "a\n", "x" * 201, "é"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        safe_name(name)
    assert caught.value.code == Code.NO_SUCH_SLOT


def test_a_uuid_keeps_its_bytes_in_order() -> None:
    text = "GPU-00112233-4455-6677-8899-aabbccddeeff"
    octets = bytes.fromhex("00112233445566778899aabbccddeeff")
    assert uuid_bytes(text) == octets
    assert uuid_text(octets) == text

    assert struct.pack("=QQ", *uuid_words(text)) == octets


@pytest.mark.parametrize(
    "text",
    ["", "GPU-a", "00112233-4455-6677-8899-aabbccddeeff", "GPU-00112233-4455-6677-8899-aabbccddeeff\n"],
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the UUID"):
        uuid_bytes(text)
