from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.deviceplugin import Entry, entries
from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2
from gaia_plugin.errors import Code, Refusal
from tests.support.kubelet import checkpoint

MEMORY = "gaia.io/vgpu-memory"
NAME = "gaia.io/slot=0123456789abcdef-fedcba9876543210"
ANSWER = api_pb2.ContainerAllocateResponse(cdi_devices=[api_pb2.CDIDevice(name=NAME)]).SerializeToString()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "device-plugins").mkdir()
    return tmp_path


def write(kubelet: Path, text: str | bytes) -> None:
    path = kubelet / "device-plugins" / "kubelet_internal_checkpoint"
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def row(**changes: Any) -> dict[str, Any]:
    return {
        "PodUID": "uid-1",
        "ContainerName": "main",
        "ResourceName": MEMORY,
        "DeviceIDs": {"-1": ["mem-00001", "mem-00000"]},
        "AllocResp": base64.b64encode(ANSWER).decode(),
        **changes,
    }


def file(*rows: dict[str, Any], **more: Any) -> str:
    data = {"PodDeviceEntries": list(rows) or None, "RegisteredDevices": {MEMORY: ["mem-00000"]}}
    return json.dumps({"Data": data, "Checksum": 18446744073709551615, **more})


RIGHT = Entry("uid-1", "main", MEMORY, frozenset({"mem-00000", "mem-00001"}), (NAME,))


@pytest.mark.parametrize(
    ("changes", "ids", "names"),
    [
        ({}, RIGHT.ids, (NAME,)),
        ({"DeviceIDs": {"0": ["mem-00000"], "1": ["mem-00001"]}}, RIGHT.ids, (NAME,)),
        ({"DeviceIDs": ["mem-00000", "mem-00001"]}, RIGHT.ids, (NAME,)),
        ({"DeviceIDs": {"-1": None}}, frozenset(), (NAME,)),
        ({"DeviceIDs": None}, frozenset(), (NAME,)),
        ({"AllocResp": None}, RIGHT.ids, ()),
        ({"AllocResp": ""}, RIGHT.ids, ()),
        ({"AllocResp": "!"}, RIGHT.ids, ()),
        ({"AllocResp": "é"}, RIGHT.ids, ()),
        ({"AllocResp": base64.b64encode(b"\xff\xff\xff").decode()}, RIGHT.ids, ()),
    ],
)
def test_every_shape_of_an_entry_is_read(
    directory: Path, changes: dict[str, Any], ids: frozenset[str], names: tuple[str, ...]
) -> None:
    write(directory, file(row(**changes), row(PodUID="uid-2")))
    first, second = entries(directory)
    assert first == Entry("uid-1", "main", MEMORY, ids, names)
    assert second.cdi_names == (NAME,)


def test_what_newer_kubelets_add_is_passed_over(directory: Path) -> None:
    write(directory, file(row(NewField=1), BootID="a"))
    assert entries(directory) == (RIGHT,)


def test_no_file_and_no_entries_are_nothing(directory: Path) -> None:
    assert entries(directory) == ()
    write(directory, file())
    assert entries(directory) == ()
    assert entries(directory / "nowhere") == ()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"Data": 1}', file({"PodUID": 1}), b'{"Data": "\xff"}']
)
def test_a_file_that_is_not_understood_is_said(directory: Path, text: str | bytes) -> None:
    write(directory, text)
    with pytest.raises(Refusal, match=r"kubelet_internal_checkpoint, is not understood: ") as said:
        entries(directory)
    assert said.value.code is Code.UNAVAILABLE


def test_a_file_that_cannot_be_read_is_said(directory: Path) -> None:
    (directory / "device-plugins" / "kubelet_internal_checkpoint").mkdir()
    with pytest.raises(Refusal, match="cannot be read: Is a directory"):
        entries(directory)


@pytest.mark.parametrize("by_numa", [True, False])
def test_the_simulated_kubelet_writes_what_is_read(directory: Path, by_numa: bool) -> None:
    held = [checkpoint.Held("uid-1", "main", MEMORY, RIGHT.ids, ANSWER)]
    checkpoint.write(directory / "device-plugins", held, {MEMORY: ["mem-00000"]}, by_numa=by_numa)
    assert entries(directory) == (RIGHT,)
    assert checkpoint.read(directory / "device-plugins")[0] == held
