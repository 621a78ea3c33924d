from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.deviceplugin import Device, Plugin, keep_registered, sockets
from gaia_plugin.errors import Unusable


class Nobody:
    def allocate(self, resource: str, ids: frozenset[str]) -> str:
        raise AssertionError

    async def prestart(self, resource: str, ids: frozenset[str]) -> None:
        raise AssertionError


@pytest.fixture
def kubelet() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gk") as directory:
        (Path(directory) / "device-plugins").mkdir()
        yield Path(directory)


@pytest.fixture
def plugin(kubelet: Path) -> Plugin:
    return Plugin("gaia.example.com/vgpu-memory", kubelet, Nobody())


def test_the_socket_is_named_after_the_resource(plugin: Plugin, kubelet: Path) -> None:
    assert plugin.socket == kubelet / "device-plugins" / "gaia-vgpu-memory.sock"


async def test_the_socket_is_root_s_alone_and_goes_when_the_plugin_stops(plugin: Plugin) -> None:
    await plugin.serve()
    assert plugin.serving
    assert stat.S_IMODE(plugin.socket.stat().st_mode) == 0o600
    await plugin.stop()
    assert not plugin.serving
    assert list(plugin.socket.parent.iterdir()) == []


async def test_serving_anew_replaces_the_socket(plugin: Plugin) -> None:
    await plugin.serve()
    before = sockets.identity(plugin.socket)
    await plugin.serve()
    assert plugin.serving
    assert sockets.identity(plugin.socket) not in (None, before)
    await plugin.stop()


async def test_what_others_left_in_the_way_is_replaced(plugin: Plugin) -> None:
    plugin.socket.write_bytes(b"")
    plugin.socket.with_name(f".{plugin.endpoint}").write_bytes(b"")
    await plugin.serve()
    assert stat.S_ISSOCK(plugin.socket.stat().st_mode)
    await plugin.stop()


async def test_a_socket_that_another_made_is_left_alone(plugin: Plugin) -> None:
    await plugin.serve()
    plugin.socket.unlink()
    plugin.socket.write_bytes(b"another's")
    assert not plugin.serving
    await plugin.stop()
    assert plugin.socket.read_bytes() == b"another's"


async def test_lists_are_sorted_and_equal_ones_are_not_sent_again(plugin: Plugin) -> None:
    plugin.update([Device("mem-00001", False), Device("mem-00000")])
    lists = plugin.lists()
    first = await anext(lists)
    assert [(device.ID, device.health) for device in first.devices] == [
        ("mem-00000", "Healthy"),
        ("mem-00001", "Unhealthy"),
    ]
    changed = plugin._changed
    plugin.update([Device("mem-00000"), Device("mem-00001", False)])
    assert plugin._changed is changed
    plugin.update([Device("mem-00000")])
    assert [device.ID for device in (await anext(lists)).devices] == ["mem-00000"]
    assert plugin.unwatched == 0
    await lists.aclose()


async def test_a_path_too_long_for_a_socket_is_refused_at_once(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    with pytest.raises(Unusable, match=r"a unix socket's path has at most 107"):
        await keep_registered([Plugin("gaia.io/vgpu-cores", deep, Nobody())], deep)
    assert os.listdir(tmp_path) == []
