"""Reading and writing GPUNodes: who may write which part, over which version, and lost answers."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from gaia_plugin.kube import gpunode, nodes
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import Amounts, CardStatus, GpuNode, Reservation, Spec, Status
from tests.support.kubeapi import FakeKubeApi, until
from tests.support.kubeapi.custom import GPUNODES
from tests.support.kubeapi.faults import Asked

NODE, CARD = "node1", "GPU-0"
OURS = Reservation("uid-1", "main", CARD, Amounts(4, 10), "default/a", "2026-11-29T12:00:00Z")
READY = Status(
    True,
    "2026-11-29T12:00:00.000000Z",
    "1",
    (CardStatus(CARD, 0, "T4", True, Amounts(60, 100), Amounts(60, 100)),),
)


async def made(api: Api, kube: FakeKubeApi) -> GpuNode:
    kube.node(NODE)
    return await nodes.create(api, NODE, await nodes.node_uid(api, NODE))


def is_put(asked: Asked) -> bool:
    return asked.method == "PUT"


async def test_the_object_goes_with_its_node(api: Api, kube: FakeKubeApi) -> None:
    assert await nodes.read(api, NODE) is None
    node = await made(api, kube)
    assert (node.metadata.name, node.spec, node.status) == (NODE, Spec(), Status())
    assert await nodes.read(api, NODE) == node
    found = kube.gpunode(NODE)
    assert found is not None
    assert (found["kind"], found["apiVersion"]) == ("GPUNode", "gaia.io/v1alpha1")
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid-1"}
    ]


async def test_each_writes_its_own_part_and_voids_what_the_other_decided(api: Api, kube: FakeKubeApi) -> None:
    first = await made(api, kube)
    reserved = await nodes.put_spec(api, first, Spec((OURS,)))
    assert (reserved.spec, reserved.status) == (Spec((OURS,)), Status())
    with pytest.raises(ApiError) as told:
        await nodes.put_status(api, first, READY)
    assert told.value.conflict
    ready = await nodes.put_status(api, reserved, READY)
    assert (ready.spec, ready.status) == (Spec((OURS,)), READY)
    with pytest.raises(ApiError) as told:
        await nodes.put_spec(api, reserved, Spec())
    assert told.value.conflict
    assert (await nodes.put_spec(api, ready, Spec())).spec == Spec()
    assert (await nodes.read(api, NODE) or first).status == READY


async def test_reservations_leave_the_rest_of_the_object_alone(api: Api, kube: FakeKubeApi) -> None:
    await made(api, kube)
    found = kube.gpunode(NODE)
    assert found is not None
    found = {**found, "metadata": {**found["metadata"], "labels": {"zone": "a"}}}
    kube.put(found, GPUNODES)
    node = await nodes.read(api, NODE)
    assert node is not None
    await nodes.put_spec(api, node, Spec((OURS,)))
    found = kube.gpunode(NODE)
    assert found is not None
    assert found["metadata"]["labels"] == {"zone": "a"}
    assert found["metadata"]["ownerReferences"]


async def test_what_changes_nothing_keeps_the_version(api: Api, kube: FakeKubeApi) -> None:
    node = await nodes.put_status(api, await made(api, kube), READY)
    assert (await nodes.put_status(api, node, READY)).version == node.version


async def test_an_object_made_anew_is_another_one(api: Api, kube: FakeKubeApi) -> None:
    old = await made(api, kube)
    kube.remove(NODE, "", GPUNODES)
    with pytest.raises(ApiError) as told:
        await nodes.put_status(api, old, READY)
    assert told.value.missing
    new = await nodes.create(api, NODE, "node-uid-1")
    assert new.metadata.uid != old.metadata.uid
    with pytest.raises(ApiError) as told:
        await nodes.put_status(api, old, READY)
    assert told.value.conflict
    with pytest.raises(ApiError) as told:
        await nodes.create(api, NODE, "node-uid-1")
    assert told.value.conflict


async def test_without_the_definition_it_is_told_what_to_apply(api: Api, kube: FakeKubeApi) -> None:
    node = await made(api, kube)
    kube.uninstall_crds()
    assert await nodes.read(api, NODE) is None
    with pytest.raises(ApiError) as told:
        await nodes.put_status(api, node, READY)
    assert told.value.missing
    with pytest.raises(nodes.NotInstalled, match=r"kubectl apply -f deploy/crd\.yaml"):
        await nodes.create(api, NODE, "node-uid-1")
    kube.install_crds()
    assert (await nodes.create(api, NODE, "node-uid-1")).status == Status()


async def test_a_write_whose_answer_is_lost_may_have_been_done(api: Api, kube: FakeKubeApi) -> None:
    node = await made(api, kube)
    kube.lose_answers(match=is_put)
    with pytest.raises(ApiError) as told:
        await nodes.put_status(api, node, READY)
    assert told.value.no_answer
    assert (await nodes.read(api, NODE) or node).status == READY


async def test_a_late_write_counts_only_if_nothing_else_was_written(api: Api, kube: FakeKubeApi) -> None:
    node = await made(api, kube)
    held = kube.hold_back(match=is_put)
    with pytest.raises(ApiError) as told:
        await nodes.put_status(api, node, READY)
    assert told.value.no_answer
    assert (await nodes.read(api, NODE)) == node
    assert held.deliver() == [200]
    held = kube.hold_back(match=is_put)
    current = await nodes.read(api, NODE)
    assert current is not None
    with pytest.raises(ApiError):
        await nodes.put_status(api, current, Status())
    await nodes.put_spec(api, current, Spec((OURS,)))
    assert held.deliver() == [409]
    assert (await nodes.read(api, NODE) or node).status == READY


async def test_an_answer_that_is_awaited_comes_when_it_is_delivered(api: Api, kube: FakeKubeApi) -> None:
    node = await made(api, kube)
    held = kube.hold_back(match=is_put, patient=True)
    writing = asyncio.create_task(nodes.put_status(api, node, READY, timeout=60))
    await until(lambda: held.waiting, "it is under way")
    assert not writing.done()
    held.deliver()
    assert (await writing).status == READY
    kube.slow_down(0.05, match=is_put)
    assert (await nodes.put_status(api, await writing, Status())).status == Status()


async def test_a_slow_server_is_no_answer(api: Api, kube: FakeKubeApi) -> None:
    node = await made(api, kube)
    held = kube.hold_back(match=is_put, patient=True)
    with pytest.raises(ApiError) as told:
        await nodes.put_status(api, node, READY, timeout=0.05)
    assert told.value.no_answer
    held.lose()
    kube.away()
    with pytest.raises(ApiError) as told:
        await nodes.read(api, NODE)
    assert told.value.no_answer


@pytest.mark.parametrize("body", ["", "null", "[]", "<html>", '{"kind": "GPUNode"}', '{"metadata": 3}'])
async def test_an_answer_that_is_no_object_is_no_answer(api: Api, kube: FakeKubeApi, body: str) -> None:
    kube.answer(body, times=2)
    with pytest.raises(ApiError) as told:
        await nodes.read(api, NODE)
    assert told.value.no_answer
    with pytest.raises(ApiError) as told:
        await nodes.node_uid(api, NODE)
    assert told.value.no_answer


async def test_another_domain_is_another_kind(api: Api, kube: FakeKubeApi) -> None:
    await made(api, kube)
    assert gpunode.path(NODE, "example.org") == "/apis/example.org/v1alpha1/gpunodes/node1"
    assert await nodes.read(api, NODE, "example.org") is None


async def test_optional_fields_are_left_out_and_never_null(api: Api, kube: FakeKubeApi) -> None:
    await nodes.put_status(api, await made(api, kube), READY)
    found = kube.gpunode(NODE)
    assert found is not None
    assert "null" not in json.dumps(found)
    assert found["status"]["cards"][0]["free"] == {"memory": 60, "cores": 100}


@pytest.mark.parametrize(
    "bad",
    [
        Reservation("", "main", CARD, Amounts(4, 10)),
        Reservation("uid-1", "", CARD, Amounts(4, 10)),
        Reservation("uid-1", "main", "", Amounts(4, 10)),
        Reservation("uid-1", "main", CARD, Amounts(0, 10)),
        Reservation("uid-1", "main", CARD, Amounts(-1, 10)),
        Reservation("uid-1", "main", CARD, Amounts(4, -1)),
        Reservation("uid-1", "main", CARD, Amounts(4, 101)),
        Reservation("uid-1", "main", CARD, Amounts(1 << 40, 10)),
    ],
    ids=lambda bad: msgspec.json.encode(bad).decode(),
)
async def test_a_reservation_that_is_none_is_refused(api: Api, kube: FakeKubeApi, bad: Reservation) -> None:
    node = await made(api, kube)
    with pytest.raises(ApiError, match=r"422 Invalid .*reservations"):
        await nodes.put_spec(api, node, Spec((OURS, bad)))
    assert await nodes.read(api, NODE) == node
