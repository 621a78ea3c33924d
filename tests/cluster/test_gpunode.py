"""GPUNode on a real API server: its definition, its columns, who writes what, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest

from gaia_plugin.kube import gpunode, nodes
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import (
    Amounts,
    CardStatus,
    Condition,
    GpuNode,
    GpuNodes,
    Link,
    Reservation,
    SliceStatus,
    SlotStatus,
    Spec,
    Status,
    Summary,
)
from gaia_plugin.kube.reflector import Reflector
from tests.cluster.agent import allow
from tests.cluster.cluster import Cluster
from tests.cluster.polling import until

T = TypeVar("T")

CARD = "GPU-00000000-0000-0000-0000-000000000000"
ONE = Amounts(4, 10)
OURS = Reservation("uid-1", "main", CARD, ONE, "default/a", "2026-11-29T12:00:00Z")
STATUS = Status(
    True,
    "2026-11-29T12:00:00.123456Z",
    "0.1",
    (
        CardStatus(
            CARD, 0, "Tesla T4", True, Amounts(60, 100), Amounts(52, 80), "", 700,
            (Link("GPU-1", "NVLink", 2),),
        ),
    ),
    (
        SlotStatus(
            "uid-2", "main", "Applied", (SliceStatus(CARD, ONE, ONE, ONE, 700),), Amounts(8, 20), "hard", 1
        ),
    ),
    (Condition("UnmanagedProcesses", "False", "None"),),
    Summary("1/1", "13/15 GiB", "80/100", "13 GiB, 80 cores"),
)  # fmt: skip


@pytest.fixture(scope="module")
def installed(one_node: Cluster) -> None:
    """What an administrator applies."""
    allow(one_node)


@pytest.fixture
def served(installed: None, cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, which knows GPUNodes and has none."""
    cluster.kubectl("delete", "gpunodes", "--all")  # agents of other modules leave theirs
    yield cluster
    cluster.kubectl("delete", "gpunodes", "--all")


def ask(cluster: Cluster, what: Callable[[Api], Awaitable[T]]) -> T:
    """Return what is answered to an administrator."""

    async def asked() -> T:
        api = await Api.connect(cluster.kubeconfig)
        try:
            return await what(api)
        finally:
            await api.close()

    return asyncio.run(asked())


def made(cluster: Cluster, name: str = "") -> GpuNode:
    """Return the object of the first node, made by us."""
    name = name or cluster.nodes[0].name

    async def create(api: Api) -> GpuNode:
        assert await nodes.read(api, name) is None
        return await nodes.create(api, name, await nodes.node_uid(api, name))

    return ask(cluster, create)


def refused(cluster: Cluster, what: Callable[[Api], Awaitable[Any]]) -> ApiError:
    with pytest.raises(ApiError) as told:
        ask(cluster, what)
    return told.value


def columns(cluster: Cluster, *words: str) -> dict[str, str]:
    """Return what `kubectl get gn` prints of the one object, by column."""
    heads, row = cluster.kubectl("get", "gn", *words).splitlines()
    starts = [heads.index(head) for head in heads.split()]
    ends = [*starts[1:], None]
    return {heads[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)}


def test_kubectl_shows_a_node_in_one_line(served: Cluster) -> None:
    node = made(served)
    ask(served, lambda api: nodes.put_status(api, node, STATUS))
    brief = columns(served)
    assert brief.pop("AGE")
    assert brief.pop("HEARTBEAT") not in ("", "<invalid>", "<unknown>")
    assert brief == {
        "NAME": node.metadata.name, "READY": "true", "CARDS": "1/1", "MEMORY": "13/15 GiB", "CORES": "80/100",
        "LARGEST": "13 GiB, 80 cores",
    }  # fmt: skip
    assert columns(served, "--output=wide")["VERSION"] == "0.1"
    assert "256 MiB" in served.kubectl("explain", "gpunode.status.cards.free")
    told = served.kubectl("explain", "gpunode.status.slots.slices")
    assert "What nobody else can get. A share of a card" in " ".join(told.split())


def test_what_is_written_is_read_back_whole(served: Cluster) -> None:
    """What the schema did not know would be dropped without a word."""
    node = made(served)
    node = ask(served, lambda api: nodes.put_spec(api, node, Spec((OURS,))))
    node = ask(served, lambda api: nodes.put_status(api, node, STATUS))
    assert (node.spec, node.status) == (Spec((OURS,)), STATUS)
    assert ask(served, lambda api: nodes.read(api, node.metadata.name)) == node
    assert gpunode.free(node) == {CARD: Amounts(52, 80).share}


def test_each_part_is_written_alone_and_over_the_newest_version(served: Cluster) -> None:
    first = made(served)
    reserved = ask(served, lambda api: nodes.put_spec(api, first, Spec((OURS,))))
    assert refused(served, lambda api: nodes.put_status(api, first, STATUS)).conflict
    ready = ask(served, lambda api: nodes.put_status(api, reserved, STATUS))
    assert ready.spec == Spec((OURS,))
    assert refused(served, lambda api: nodes.put_spec(api, reserved, Spec())).conflict
    freed = ask(served, lambda api: nodes.put_spec(api, ready, Spec()))
    assert (freed.spec, freed.status) == (Spec(), STATUS)
    # what changes nothing keeps the version, but not over an old one
    assert ask(served, lambda api: nodes.put_spec(api, freed, Spec())).version == freed.version
    assert ask(served, lambda api: nodes.put_status(api, freed, STATUS)).version == freed.version
    assert refused(served, lambda api: nodes.put_spec(api, ready, Spec())).conflict
    assert refused(served, lambda api: nodes.put_status(api, ready, STATUS)).conflict


def test_a_put_of_one_part_drops_what_it_says_of_the_other(served: Cluster) -> None:
    node = made(served)
    node = ask(served, lambda api: nodes.put_spec(api, node, Spec((OURS,))))
    path = gpunode.path(node.metadata.name)
    whole = served.get(path)
    whole["status"] = msgspec.to_builtins(STATUS)
    assert "status" not in served.control.send("PUT", path, whole)
    whole["spec"] = {}
    answer = served.control.send("PUT", f"{path}/status", whole)
    assert answer["spec"]["reservations"]
    assert answer["status"]["ready"] is True
    assert answer["metadata"]["ownerReferences"]


def test_an_object_made_anew_takes_no_old_write(served: Cluster) -> None:
    old = made(served)
    served.kubectl("delete", "gn", old.metadata.name)
    assert refused(served, lambda api: nodes.put_status(api, old, STATUS)).missing
    assert refused(served, lambda api: nodes.put_spec(api, old, Spec((OURS,)))).missing
    new = made(served)
    assert refused(served, lambda api: nodes.put_status(api, old, STATUS)).conflict
    assert refused(served, lambda api: nodes.put_spec(api, old, Spec((OURS,)))).conflict
    uid = new.metadata.uid
    assert refused(served, lambda api: nodes.create(api, new.metadata.name, uid)).conflict


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ({"uid": ""}, "uid"),
        ({"uid": None}, "uid"),
        ({"container": ""}, "container"),
        ({"card": ""}, "card"),
        ({"card": 3}, "card"),
        ({"amounts": None}, "amounts"),
        ({"amounts": {}}, "amounts"),
        ({"amounts": {"memory": 4}}, "cores"),
        ({"amounts": {"memory": 0, "cores": 10}}, "memory"),
        ({"amounts": {"memory": -4, "cores": 10}}, "memory"),
        ({"amounts": {"memory": 4.5, "cores": 10}}, "memory"),
        ({"amounts": {"memory": "4", "cores": 10}}, "memory"),
        ({"amounts": {"memory": 4, "cores": 101}}, "cores"),
        ({"amounts": {"memory": 1 << 50, "cores": 10}}, "memory"),
    ],
    ids=lambda part: json.dumps(part) if isinstance(part, dict) else part,
)
def test_a_reservation_that_is_none_is_refused(served: Cluster, bad: dict[str, Any], where: str) -> None:
    manifest = {
        "apiVersion": gpunode.api_version(),
        "kind": gpunode.KIND,
        "metadata": {"name": "bad"},
        "spec": {"reservations": [{**msgspec.to_builtins(OURS), **bad}]},
    }
    with pytest.raises(RuntimeError, match=rf"422 .*spec\.reservations\[0\].*{where}"):
        served.control.send("POST", gpunode.path(), manifest)


def test_the_server_keeps_no_account_of_each_field_of_each_slot(served: Cluster) -> None:
    node = made(served)
    slots = tuple(msgspec.structs.replace(STATUS.slots[0], uid=f"uid-{each}") for each in range(64))
    many = tuple(msgspec.structs.replace(OURS, uid=f"uid-{each}") for each in range(64))
    node = ask(served, lambda api, node=node: nodes.put_spec(api, node, Spec(many)))
    ask(served, lambda api: nodes.put_status(api, node, msgspec.structs.replace(STATUS, slots=slots)))
    noted = served.get(gpunode.path(node.metadata.name))["metadata"]["managedFields"]
    assert len(json.dumps(noted)) < 4096


def test_the_object_goes_with_its_node(served: Cluster) -> None:
    served.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "passing"}})
    made(served, "passing")
    served.kubectl("delete", "node", "passing")
    until("its GPUNode is gone", lambda: not served.get(gpunode.path("passing")), 120)


def test_an_agent_may_write_a_status_and_nothing_else_of_it(served: Cluster) -> None:
    name = served.nodes[0].name
    account = ["--as=system:serviceaccount:gaia-system:gaia-agent"]

    def may(verb: str, what: str, *words: str) -> bool:
        try:
            return served.kubectl("auth", "can-i", verb, what, *words, *account).strip() == "yes"
        except RuntimeError:  # kubectl ends with 1 on a no
            return False

    allowed = {
        ("get", "gpunodes.gaia.io"), ("list", "gpunodes.gaia.io"), ("watch", "gpunodes.gaia.io"),
        ("create", "gpunodes.gaia.io"), ("get", "nodes"), ("patch", "pods"), ("delete", "pods"),
        ("create", "events.events.k8s.io"),
    }  # fmt: skip
    assert {pair for pair in allowed if not may(*pair)} == set()
    assert may("update", "gpunodes.gaia.io", "--subresource=status")
    for verb in ("update", "patch", "delete"):
        assert not may(verb, f"gpunodes.gaia.io/{name}")


def test_a_reflector_follows_the_objects_of_a_cluster(served: Cluster) -> None:
    async def follow(api: Api) -> tuple[str, ...]:
        reflector: Reflector[GpuNode] = Reflector(api, GpuNodes())
        running = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(120):
                await reflector.synced.wait()
            name = served.nodes[0].name
            node = await nodes.create(api, name, await nodes.node_uid(api, name))
            node = await nodes.put_status(api, node, STATUS)
            seen = await reflector.wait_for(node.metadata.uid, 120, lambda item: item.status.ready)
            assert seen is not None
            assert seen.status == STATUS
            return tuple(item.metadata.name for item in reflector.store.values())
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    assert ask(served, follow) == (served.nodes[0].name,)


def test_without_the_definition_it_is_told_what_to_apply(served: Cluster) -> None:
    node = made(served)
    served.kubectl("delete", "crd", "gpunodes.gaia.io")
    until("GPUNodes are not served", lambda: not served.get(gpunode.path()), 60)
    name = node.metadata.name
    assert ask(served, lambda api: nodes.read(api, name)) is None
    assert refused(served, lambda api: nodes.put_status(api, node, STATUS)).missing
    told = refused(served, lambda api: nodes.create(api, name, node.metadata.uid))
    assert isinstance(told, nodes.NotInstalled)
    served.install_crds()
    assert made(served).metadata.uid != node.metadata.uid
