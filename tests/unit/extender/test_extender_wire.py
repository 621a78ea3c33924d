"""What kube-scheduler sends, what nobody should send, and what is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaia_plugin.extender import wire
from gaia_plugin.extender.demand import demand_of
from gaia_plugin.extender.service import Service
from gaia_plugin.extender.wire import Unreadable
from gaia_plugin.placement import Request
from tests.support.kubeapi import pod_manifest
from tests.unit.extender.worlds import RUNNING, World, card, pod, reservation, slot

LIMITS = {"gaia.io/vgpu-memory": "16", "gaia.io/vgpu-cores": "25"}


def manifest(**more: Any) -> dict[str, Any]:
    return pod_manifest("p1", node=None, limits=LIMITS, uid="u1", **more)


def service(world: World, *, synced: bool = True) -> Service:
    return Service(world.snapshot, world.chooser, None, lambda: synced)  # type: ignore[arg-type]


def ask(world: World, value: Any, *, verb: str = "filter", synced: bool = True) -> Any:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return json.loads(getattr(service(world, synced=synced), verb)(body))


def small() -> World:
    world = World()
    world.node("n1", [card("a")])
    world.node("n2", [card("b")], reservations=[reservation("p0", "b", 16, 25)])
    return world


def test_the_names_are_those_of_the_go_types() -> None:
    answer = ask(small(), {"Pod": manifest(), "Nodes": None, "NodeNames": ["n1", "n2"]})
    assert answer == {
        "Nodes": None, "NodeNames": ["n2"], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": "",
    }  # fmt: skip


def test_lower_case_names_and_unknown_fields_are_read() -> None:
    value = {"pod": manifest() | {"future": 1}, "nodenames": ["n1"], "nodes": None, "More": {"a": [1]}}
    assert ask(small(), value)["NodeNames"] == ["n1"]
    assert ask(small(), {"Pod": manifest(), "nodeNames": ["n1"]})["NodeNames"] == ["n1"]


def test_whole_nodes_are_answered_with_whole_nodes() -> None:
    items = [{"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"x": 1}} for name in ("n1", "n2")]
    answer = ask(small(), {"Pod": manifest(), "Nodes": {"items": items}, "NodeNames": None})
    assert answer["Nodes"]["items"] == [items[1]]


@pytest.mark.parametrize("quantity", [16, "16", "16000m", 16.0])
def test_quantities_are_read_in_every_form(quantity: object) -> None:
    value = manifest()
    for kind in ("limits", "requests"):
        value["spec"]["containers"][0]["resources"][kind]["gaia.io/vgpu-memory"] = quantity
    offer = wire.read_offer(json.dumps({"Pod": value, "NodeNames": []}).encode())
    if quantity == 16.0 and isinstance(quantity, float):
        assert demand_of(offer.pod).kind == (Request(16, 25),)
    else:
        assert demand_of(offer.pod).kind == (Request(16, 25),)


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        ("9" * 30, "more than Kubernetes can count"),
        ("-4", "negative"),
        ("8Gi", "no card is that large"),
        ("zwölf", "not a number"),
        ("", "not a number"),
        ("1.5", "not a whole number"),
        (10**40, "more than Kubernetes can count"),
        (True, "not a number"),
        ([], "not a number"),
    ],
)
def test_an_amount_that_is_none_is_a_sentence_on_every_node(memory: object, says: str) -> None:
    value = manifest()
    resources = {"gaia.io/vgpu-memory": memory}
    value["spec"]["containers"][0]["resources"] = {"limits": resources, "requests": resources}
    answer = ask(small(), {"Pod": value, "NodeNames": ["n1", "n2"]})
    assert answer["Error"] == ""
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"].keys() == {"n1", "n2"}
    assert says in answer["FailedAndUnresolvableNodes"]["n1"]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": None},
        {"containers": []},
        {"containers": [{"name": "main"}]},
        {"containers": [{"name": "main", "resources": None}]},
        {"containers": [{"name": "main", "resources": {"limits": None}}]},
        {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
        {"containers": [{"name": "main", "resources": {"limits": {"gaia.io/vgpu-memory": "0"}}}]},
        {"containers": "none"},
        {"containers": [7, None]},
        None,
        "odd",
    ],
)
def test_a_pod_that_asks_for_no_slice_may_go_anywhere(spec: Any) -> None:
    value = manifest()
    value["spec"] = spec
    assert ask(small(), {"Pod": value, "NodeNames": ["n1", "x"]})["NodeNames"] == ["n1", "x"]


def test_a_plain_init_container_is_told_what_to_do_instead() -> None:
    value = manifest(init=[{"name": "load", "resources": {"limits": LIMITS}}])
    answer = ask(small(), {"Pod": value, "NodeNames": ["n1"]})
    assert "plain init container cannot hold a slice" in answer["FailedAndUnresolvableNodes"]["n1"]


def test_a_native_sidecar_is_placed_beside_the_others() -> None:
    value = manifest(init=[{"name": "side", "restartPolicy": "Always", "resources": {"limits": LIMITS}}])
    offer = wire.read_offer(json.dumps({"Pod": value, "NodeNames": []}).encode())
    assert demand_of(offer.pod).containers == ("main", "side")


@pytest.mark.parametrize("offered", [None, [], ["x", "y"]])
def test_nodes_that_nobody_knows_are_refused_one_by_one(offered: list[str] | None) -> None:
    answer = ask(small(), {"Pod": manifest(), "Nodes": None, "NodeNames": offered})
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"].keys() == set(offered or ())


ODD = [
    b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff\xfe", b"{}", b'{"Pod":null}', b'{"Pod":7}', b'{"Pod":{}}',
    b'{"Pod":{"metadata":null,"spec":null},"NodeNames":[1,2]}', b'{"Pod":{},"NodeNames":{"a":1}}',
    b'{"Pod":{},"Nodes":{"items":[{},7,{"metadata":{"name":3}}]}}', b"[" * 100_000,
    b'{"Pod":{"metadata":{"name":"\\ud800"}},"NodeNames":["\\ud800"]}', b'{"Pod":' + b'{"a":' * 5000,
    b'{"PodName":"a"}', b'{"NodeNameToMetaVictims":7,"Pod":{}}',
    b'{"Pod":{},"NodeNameToVictims":{"n1":{"Pods":[7,{"metadata":{"uid":3}},null]},"n2":null}}',
]  # fmt: skip


@pytest.mark.parametrize("body", ODD)
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
def test_whatever_comes_is_answered(verb: str, body: bytes) -> None:
    answer = ask(small(), body, verb=verb)
    assert isinstance(answer, list if verb == "prioritize" else dict)
    assert "Traceback" not in json.dumps(answer)
    assert "failed at this pod" not in json.dumps(answer), "an exception of ours"


@pytest.mark.parametrize("body", ODD)
async def test_whatever_is_to_be_bound_is_answered(body: bytes) -> None:
    answer = json.loads(await service(small()).bind(body))
    assert answer["Error"].startswith("Gaia: ")


def test_before_the_cluster_is_read_it_says_so() -> None:
    answer = ask(small(), {"Pod": manifest(), "NodeNames": ["n1"]}, synced=False)
    assert "still reading the cluster" in answer["Error"]


def test_an_error_of_ours_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    world = small()
    monkeypatch.setattr(world.chooser, "choose", lambda *_: 1 // 0)
    answer = ask(world, {"Pod": manifest(), "NodeNames": ["n1"]})
    assert answer["Error"] == "Gaia's extender has failed at this pod; its log says where. It is tried again."


def test_bind_arguments_are_read_in_any_case() -> None:
    exact = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"}
    lower = {key.lower(): value for key, value in exact.items()}
    for value in (exact, lower, exact | {"New": 1}):
        assert wire.read_binding(json.dumps(value).encode()) == wire.BindingArgs("p", "ns", "u", "n")
    with pytest.raises(Unreadable):
        wire.read_binding(b'{"PodName":"p"}')


def lodgers(world: World, **where: str) -> None:
    """Let these pods be bound, so that what they hold is theirs."""
    for uid, node in where.items():
        world.pod(pod(uid, 1, 1, node=node))


def preempt(world: World, **victims: list[str]) -> set[str]:
    value = pod_manifest("p1", node=None, limits={"gaia.io/vgpu-cores": "100"}, uid="u1")
    told = {name: {"Pods": [{"UID": uid} for uid in uids]} for name, uids in victims.items()}
    asked = {"Pod": value, "NodeNameToVictims": None, "NodeNameToMetaVictims": told}
    answer = json.loads(service(world).preempt(json.dumps(asked).encode()))
    return set(answer["NodeNameToMetaVictims"])


def test_preemption_goes_by_cards_and_not_by_sums() -> None:
    world = World()
    world.node(
        "n1", [card("a"), card("b")],
        reservations=[reservation("v1", "a", 32, 50), reservation("v2", "b", 32, 50)],
    )  # fmt: skip
    world.node("n2", [card("c")], reservations=[reservation("v3", "c", 64, 100)])
    lodgers(world, v1="n1", v2="n1", v3="n2")
    assert preempt(world, n1=["v1"], n2=["other"], n3=["v9"]) == {"n1"}
    assert preempt(world, n1=["v1"], n2=["v3"]) == {"n1", "n2"}


def test_the_answer_to_preempt_names_the_victims_as_they_came() -> None:
    world = World()
    world.node("n1", [card("a")], reservations=[reservation("v1", "a", 64, 100)])
    lodgers(world, v1="n1")
    victims = {"n1": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 2}}
    asked = {"Pod": manifest(), "NodeNameToMetaVictims": victims}
    assert ask(world, asked, verb="preempt") == {"NodeNameToMetaVictims": victims}


def test_nobody_is_evicted_in_the_moment_in_which_room_has_come() -> None:
    world = World()
    service_of = service(world)
    world.node("n1", [card("a")], reservations=[reservation("v1", "a", 64, 100)])
    world.node("n2", [card("b")], reservations=[reservation("v2", "b", 64, 100)])
    lodgers(world, v1="n1", v2="n2")
    world.now += 60
    value = pod_manifest("p1", node=None, limits={"gaia.io/vgpu-cores": "100"}, uid="u1")
    asked = {"Pod": value, "NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": "v2"}]}}}
    body = json.dumps(asked).encode()

    def evicted() -> set[str]:
        return set(json.loads(service_of.preempt(body))["NodeNameToMetaVictims"])

    assert evicted() == {"n2"}
    world.node("n1", [card("a")], version=2)
    world.gone(world.pods["v1"])
    assert evicted() == set()  # kube-scheduler may not have seen yet that v1 is gone
    world.now += 11
    assert evicted() == {"n2"}  # it has: something else than cards keeps the pod from n1


@pytest.mark.parametrize("how", ["terminating", "gone", "slot only"])
def test_nobody_is_evicted_while_room_is_about_to_come(how: str) -> None:
    world = World()
    service_of = service(world)
    whole = [reservation("v1", "a", 64, 100)]
    if how == "slot only":
        world.node("n1", [card("a")], slots=[slot("v1", "a", 64, 100)])
    else:
        world.node("n1", [card("a")], reservations=whole)
    world.node("n2", [card("b")], reservations=[reservation("v2", "b", 64, 100)])
    lodgers(world, v2="n2")
    if how == "terminating":
        world.pod(pod("v1", 64, 100, node="n1", deleted=True, state=RUNNING))
    value = pod_manifest("p1", node=None, limits={"gaia.io/vgpu-cores": "100"}, uid="u1")
    asked = {"Pod": value, "NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": "v2"}]}}}
    body = json.dumps(asked).encode()
    assert json.loads(service_of.preempt(body)) == {"NodeNameToMetaVictims": {}}
    world.now += 61
    for name in ("n1", "n2"):  # both agents are alive, and one container hangs
        node = world.snapshot.nodes[name].gpunode
        assert node is not None
        world.node(
            name, node.status.cards, slots=node.status.slots, reservations=node.spec.reservations,
            heartbeat="2026-11-29T12:01:01Z", version=2,
        )  # fmt: skip
    assert json.loads(service_of.preempt(body))["NodeNameToMetaVictims"].keys() == {"n2"}


def test_victims_as_whole_pods_are_read() -> None:
    victims = {"n1": {"Pods": [{"metadata": {"uid": "v1", "name": "x"}}]}}
    read = wire.read_preemption(json.dumps({"Pod": manifest(), "NodeNameToVictims": victims}).encode())
    assert read.victims == {"n1": wire.Victims(("v1",))}
