"""GPUNodes as they are read: the one sum of what is free, and objects of other versions of Gaia."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from gaia_plugin.counted import Holder
from gaia_plugin.kube import gpunode, nodes
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.gpunode import Amounts, GpuNode, GpuNodes, Reservation, Spec
from gaia_plugin.kube.reflector import Backoff, Reflector
from gaia_plugin.shares import Share
from tests.support.kubeapi import FakeKubeApi, until
from tests.support.kubeapi.custom import GPUNODES


def amounts(memory: int, cores: int = 10) -> dict[str, int]:
    return {"memory": memory, "cores": cores}


def reservation(uid: str = "u1", memory: int = 4, card: str = "A", **more: Any) -> dict[str, Any]:
    return {"uid": uid, "container": "main", "card": card, "amounts": amounts(memory), **more}


def slot(uid: str = "u1", memory: int = 4, **more: Any) -> dict[str, Any]:
    part = {"card": "A", "requested": amounts(memory), "granted": amounts(memory), "held": amounts(memory)}
    return {
        "uid": uid, "container": "main", "state": "Applied", "slices": [part], "maximum": amounts(memory),
        "compute": "hard", "generation": 1, **more,
    }  # fmt: skip


def card(uuid: str = "A", **more: Any) -> dict[str, Any]:
    whole = amounts(60, 100)
    return {
        "uuid": uuid,
        "index": 0,
        "model": "T4",
        "healthy": True,
        "capacity": whole,
        "free": whole,
        **more,
    }


def node(reservations: object = (), slots: object = (), **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "node1", "uid": "n", "resourceVersion": "7"},
        "spec": {"reservations": reservations},
        "status": {"ready": True, "cards": [card(), card("B")], "slots": slots, **status},
    }


def read(item: object) -> GpuNode:
    return gpunode.read(msgspec.json.encode(item))


def test_a_container_counts_once_with_its_slot_and_else_with_its_reservation() -> None:
    item = read(
        node(
            [reservation("u1", 9), reservation("u2", 5), reservation("u2", 2, "B"), reservation("u3", 50)],
            [slot("u1", 4), slot("u9", 8)],
        )
    )
    assert gpunode.held(item.status.slots)[Holder("u1", "main")] == {"A": Share(4, 10)}
    assert gpunode.reserved(item.spec.reservations)[Holder("u2", "main")] == {
        "A": Share(5, 10), "B": Share(2, 10),
    }  # fmt: skip
    assert gpunode.free(item) == {"A": Share(60 - 4 - 8 - 5 - 50, 60), "B": Share(58, 90)}


WHOLE = 60


@pytest.mark.parametrize(
    ("item", "free"),
    [
        # newer: fields and words that we do not know
        (node([reservation(priority=3)], later={"x": 1}), WHOLE - 4),
        (node([], [slot(state="Frozen")]), WHOLE - 4),
        (node([], [slot(compute="shared", generation="x" * 10)]), WHOLE),  # a generation is needed
        (node([], [slot(desired={"text": "t", "state": "Maybe"})]), WHOLE - 4),
        (node([], [slot(desired={"text": 3})]), WHOLE - 4),
        (node([], [slot(desired=[])]), WHOLE - 4),
        (node([], [slot(message=None, pod=7)]), WHOLE - 4),
        (node([reservation(at=12)]), WHOLE - 4),
        # odd: one that cannot be counted goes, the others stay
        (node([reservation("", 9), reservation("u2", 5)]), WHOLE - 5),
        (node([reservation(memory=-9), reservation("u2", 5)]), WHOLE - 5),
        (node([{**reservation(), "amounts": {"memory": 3}}, 7, None, [], reservation("u2", 5)]), WHOLE - 5),
        (node([reservation(memory=4.5)]), WHOLE),  # type: ignore[arg-type]
        (node("none", [slot("u2", 5)]), WHOLE - 5),
        (node([], {"a": 1}), WHOLE),
        ({**node([], [slot("u2", 5)]), "spec": None}, WHOLE - 5),
        (node([reservation(f"u{at}", 1) for at in range(1100)]), WHOLE - 1100),
        (node([], [], conditions=[3, {"type": "T", "status": "Perhaps", "reason": "r"}]), WHOLE),
        (node([], [slot()], heartbeat=9, summary=[], ready="yes"), WHOLE - 4),
    ],
)
def test_an_object_that_is_odd_in_part_is_read_all_the_same(item: dict[str, Any], free: int) -> None:
    assert gpunode.free(read(item))["A"].units == free


def test_a_status_that_cannot_be_read_leaves_the_reservations() -> None:
    item = read({**node([reservation()]), "status": 3})
    assert item.spec == Spec((Reservation("u1", "main", "A", Amounts(4, 10)),))
    assert item.status == gpunode.Status()
    assert not gpunode.free(item)


@pytest.mark.parametrize(
    "raw",
    [b"", b"3", b"{}", b'{"metadata": {"name": "a"}}', b'{"metadata": {"name": 3, "uid": "x"}}', b"\xff"],
)
def test_what_is_no_object_is_an_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        gpunode.read(raw)


async def test_a_reflector_follows_odd_objects_too(api: Api, kube: FakeKubeApi) -> None:
    kube.put(node([reservation("", 9), reservation("u2", 5)]), GPUNODES)
    reflector: Reflector[GpuNode] = Reflector(
        api, GpuNodes(), field_selector="metadata.name=node1", backoff=Backoff(first=0.01, most=0.05)
    )
    running = asyncio.create_task(reflector.run())

    def free() -> int:
        (item,) = reflector.store.values()
        return gpunode.free(item)["A"].units

    await reflector.synced.wait()
    assert free() == WHOLE - 5
    kube.put({**node([reservation("u2", 7)], [slot("u3", state="Frozen")]), "kind": "GPUNode"}, GPUNODES)
    await until(lambda: free() == WHOLE - 7 - 4, "the change is seen")
    kube.put({**node(), "metadata": {"name": "node2", "uid": "m"}}, GPUNODES)
    kube.uninstall_crds()
    await until(lambda: not reflector.store, "nothing is left")
    await until(lambda: reflector.trouble is not None and reflector.trouble.missing, "it is told")
    kube.install_crds()
    kube.node()
    await nodes.create(api, "node1", "node-uid-1")
    await until(lambda: len(reflector.store) == 1, "it is back")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
