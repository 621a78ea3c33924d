"""Binding against an API server: lost answers, late writes, conflicts, and an extender killed on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gaia_plugin.extender import binding
from gaia_plugin.kube import nodes
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import Status
from gaia_plugin.kube.placement import Placement, parse, placement_key
from gaia_plugin.placement import Slice
from gaia_plugin.shares import Share
from tests.support.kubeapi import until
from tests.support.kubeapi.faults import Asked
from tests.unit.extender.conftest import Ask, Site, bind_pod
from tests.unit.extender.worlds import card, reservation, slot


def reserving(asked: Asked) -> bool:
    return asked.method == "PATCH" and "/gpunodes/" in asked.path


def binds(asked: Asked) -> bool:
    return asked.path.endswith("/binding")


def writes(site: Site) -> list[str]:
    return [f"{one.method} {one.path}" for one in site.kube.asked if one.method != "GET"]


async def test_bind_reserves_first_and_tells_the_pod_its_cards(site: Site) -> None:
    site.node("n1", [card("a"), card("b")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.reservations() == {"p1": [("a", 16, 25)]}
    assert site.bound_to("p1") == "n1"
    annotation = site.kube.pod("p1")["metadata"]["annotations"][placement_key()]
    assert parse(annotation) == Placement("p1", "n1", {"main": (Slice("a", Share(16, 25)),)})
    assert [each.split("/")[-1] for each in writes(site)] == ["n1", "binding"]


async def test_c03_filter_and_prioritize_write_nothing_and_bind_twice_reserves_once(
    site: Site, filter_pod: Ask
) -> None:
    for name in ("n1", "n2", "n3"):
        site.node(name, [card(f"{name}-a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    answers = [filter_pod(extender, "p1", ["n1", "n2", "n3"]) for _ in range(5)]
    assert [answer["NodeNames"] for answer in answers] == [["n1"]] * 5
    assert writes(site) == []
    assert await bind_pod(extender, "p1", "n1") == ""
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.reservations() == {"p1": [("n1-a", 16, 25)]}
    pod = site.kube.pod("p1")
    site.kube.remove("p1")
    site.kube.put({**pod, "spec": {**pod["spec"], "nodeName": None}})
    assert filter_pod(extender, "p1", ["n1", "n2", "n3"])["Error"] == ""


async def test_the_same_bind_asked_while_it_is_under_way_is_one(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    answers = await asyncio.gather(*(bind_pod(extender, "p1", "n1") for _ in range(5)))
    assert answers == [""] * 5
    assert len([each for each in writes(site) if each.endswith("/binding")]) == 1


async def test_binds_that_come_together_take_different_room(site: Site) -> None:
    site.node("n1", [card("a"), card("b")])
    for index in range(4):
        site.pod(f"p{index}", 40, 60)
    extender = await site.start()
    answers = await asyncio.gather(*(bind_pod(extender, f"p{index}", "n1") for index in range(4)))
    assert answers[:2] == ["", ""]
    assert all("is not free on n1 any more" in answer for answer in answers[2:])
    assert sorted(parts[0][0] for parts in site.reservations().values()) == ["a", "b"]


async def test_filter_counts_a_bind_from_the_moment_it_is_asked_for(site: Site, filter_pod: Ask) -> None:
    site.node("n1", [card("a")])
    site.node("n2", [card("b")])
    site.pod("p1", 64, 100)
    site.pod("p2", 64, 100)
    extender = await site.start()
    await until(lambda: len(extender.snapshot.waiting) == 2)
    task = asyncio.create_task(bind_pod(extender, "p1", "n1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert filter_pod(extender, "p2", ["n1", "n2"])["NodeNames"] == ["n2"]
    assert await task == ""
    assert filter_pod(extender, "p2", ["n1", "n2"])["NodeNames"] == ["n2"]


@pytest.mark.parametrize("match", [reserving, binds])
async def test_a_lost_answer_reserves_once_and_binds_once(site: Site, match: Callable[[Asked], bool]) -> None:
    site.node("n1", [card("a"), card("b")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    site.kube.lose_answers(match=match)
    first = await bind_pod(extender, "p1", "n1")
    assert first == "" or "no answer" in first
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.bound_to("p1") == "n1"
    assert list(site.reservations()) == ["p1"]
    assert len(site.reservations()["p1"]) == 1


async def test_a_bind_whose_answer_was_lost_is_found_done(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    site.kube.lose_answers(match=binds)
    assert await bind_pod(extender, "p1", "n1") == ""


async def test_a_reservation_that_arrives_late_gives_no_room_twice(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 40, 60)
    site.pod("p2", 40, 60)
    extender = await site.start()
    held = site.kube.hold_back(match=reserving)
    assert "no answer" in await bind_pod(extender, "p1", "n1")
    assert await bind_pod(extender, "p2", "n1") == ""
    assert held.deliver() == [409]
    assert list(site.reservations()) == ["p2"]


async def test_a_binding_that_arrives_late_finds_its_reservation_or_is_refused(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 40, 60)
    extender = await site.start()
    held = site.kube.hold_back(match=binds)
    assert "no answer" in await bind_pod(extender, "p1", "n1")
    assert site.reservations() == {"p1": [("a", 40, 60)]}
    assert held.deliver() == [201]
    assert site.bound_to("p1") == "n1"
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.reservations() == {"p1": [("a", 40, 60)]}


@pytest.mark.parametrize("times", [1, 3])
async def test_a_conflict_begins_anew(site: Site, times: int) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    site.kube.refuse(409, "Conflict", times=times, match=reserving)
    assert await bind_pod(extender, "p1", "n1") == ""


async def test_four_conflicts_are_an_error_and_a_sentence(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    site.kube.refuse(409, "Conflict", times=4, match=binds)
    assert "changed by others at each of four tries" in await bind_pod(extender, "p1", "n1")
    assert len([one for one in site.kube.asked if binds(one)]) == 4
    assert await bind_pod(extender, "p1", "n1") == ""


async def test_a_pod_that_changes_between_read_and_binding_is_read_again(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    held = site.kube.hold_back(match=binds, patient=True)
    task = asyncio.create_task(bind_pod(extender, "p1", "n1"))
    await until(lambda: held.waiting)
    site.kube.change("p1", {"metadata": {"labels": {"touched": "1"}}})
    assert held.deliver() == [409]
    assert await task == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metadata": {"uid": "another"}}, "another one has its name"),
        ({"spec": {"nodeName": "n9"}}, "is bound to n9 already"),
        ({"metadata": {"deletionTimestamp": "2026-11-29T12:00:00Z"}}, "is being deleted"),
        ({"status": {"phase": "Failed"}}, "is being deleted"),
    ],
)
async def test_a_pod_that_cannot_be_bound_is_told_in_a_sentence(
    site: Site, change: dict[str, object], says: str
) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    site.kube.change("p1", change)
    assert says in await bind_pod(extender, "p1", "n1")
    assert site.reservations() == {}


async def test_what_is_gone_is_told_in_a_sentence(site: Site) -> None:
    site.node("n1", [card("a")])
    extender = await site.start()
    assert "the pod is gone" in await bind_pod(extender, "p1", "n1")
    site.pod("p1", 16, 25)
    assert "n2 has no GPUNode" in await bind_pod(extender, "p1", "n2")


async def test_an_agent_that_has_stopped_gets_no_pod(site: Site) -> None:
    site.node("n1", [card("a")], ready=False)
    site.node("n2", [card("b")], heartbeat="2020-01-01T00:00:00Z")
    site.pod("p1", 16, 25)
    extender = await site.start()
    for name in ("n1", "n2"):
        assert "has stopped reporting" in await bind_pod(extender, "p1", name)
    assert site.reservations("n1") == site.reservations("n2") == {}


async def test_a_reservation_from_before_is_kept_card_by_card(site: Site) -> None:
    site.node("n1", [card("a"), card("b")], reservations=[reservation("p1", "b", 16, 25)])
    site.pod("p1", 16, 25)
    extender = await site.start()
    version = (site.kube.gpunode("n1") or {})["metadata"]["resourceVersion"]
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.reservations() == {"p1": [("b", 16, 25)]}
    assert (site.kube.gpunode("n1") or {})["metadata"]["resourceVersion"] != version, "it is written always"


async def test_cards_that_are_taken_meanwhile_are_replaced_by_others(site: Site) -> None:
    slots = [slot("other", "b", 60, 90)]
    site.node("n1", [card("a"), card("b")], slots=slots, reservations=[reservation("p1", "b", 16, 25)])
    site.pod("p1", 16, 25)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.reservations() == {"p1": [("a", 16, 25)]}


async def test_a_pod_without_a_slice_is_bound_without_a_reservation(site: Site) -> None:
    site.node("n1", [card("a")])
    pod = site.pod("p1", 16, 25)
    pod["spec"]["containers"][0]["resources"] = {}
    site.kube.put(pod)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.reservations() == {}


@pytest.mark.parametrize("step", ["read_node_and_pod", "reserve", "bind"])
@pytest.mark.parametrize("after", [False, True])
async def test_an_extender_killed_between_any_two_steps_loses_and_doubles_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    site.node("n1", [card("a"), card("b")])
    site.pod("p1", 40, 60)
    site.pod("p2", 40, 60)
    real, reached = getattr(binding, step), asyncio.Event()

    async def killed(*given: object) -> object:
        if after:
            await real(*given)
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody comes here")

    extender = await site.start()
    monkeypatch.setattr(binding, step, killed)
    asking = asyncio.create_task(bind_pod(extender, "p1", "n1"))
    await reached.wait()
    await site.kill()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    monkeypatch.setattr(binding, step, real)
    successor = await site.start()
    assert await bind_pod(successor, "p2", "n1") == ""
    assert await bind_pod(successor, "p1", "n1") == ""
    assert sorted(parts[0][0] for parts in site.reservations().values()) == ["a", "b"]
    assert {site.bound_to("p1"), site.bound_to("p2")} == {"n1"}


async def test_two_replicas_that_both_bind_give_nothing_twice(site: Site) -> None:
    site.node("n1", [card("a"), card("b")])
    for index in range(8):
        site.pod(f"p{index}", 24, 30)
    one, other = await site.start(), await site.start()
    answers = await asyncio.gather(
        *(bind_pod(one if index % 2 else other, f"p{index}", "n1") for index in range(8))
    )
    found = site.reservations()
    assert len(found) == len([answer for answer in answers if not answer])
    for uuid in ("a", "b"):
        parts = [part for each in found.values() for part in each if part[0] == uuid]
        assert sum(units for _, units, _ in parts) <= 64
        assert sum(cores for _, _, cores in parts) <= 100
    # whoever lost by conflicts asks again, as kube-scheduler does
    for index, answer in enumerate(answers):
        if "changed by others" in answer:
            await bind_pod(one, f"p{index}", "n1")
    assert len(site.reservations()) == 4
    assert all(site.bound_to(uid) == "n1" for uid in site.reservations())


async def test_two_replicas_that_bind_the_same_pod_to_two_nodes_leave_one_reservation(site: Site) -> None:
    for name in ("n1", "n2"):
        site.node(name, [card(f"{name}-a")])
    site.pod("p1", 16, 25)
    one, other = await site.start(), await site.start()
    answers = await asyncio.gather(bind_pod(one, "p1", "n1"), bind_pod(other, "p1", "n2"))
    assert answers.count("") == 1
    bound = site.bound_to("p1")
    lost = {"n1": "n2", "n2": "n1"}[bound or ""]
    assert list(site.reservations(bound or "")) == ["p1"]
    await until(lambda: site.reservations(lost) == {}, "the other one is dropped")


async def grow(api: Api, uid: str, units: int) -> bool:
    """Grow a slot as the agent does: status over the version that was decided upon; True: it is written."""
    for _ in range(8):
        node = await nodes.read(api, "n1")
        assert node is not None
        held = {one.uid: one.slices[0].held.memory for one in node.status.slots}
        waiting = sum(one.amounts.memory for one in node.spec.reservations if one.uid not in held)
        if sum(held.values()) - held[uid] + units + waiting > 64:
            return False
        cards, grown = node.status.cards, (slot(uid, "a", units, 10),)
        status = Status(ready=True, heartbeat=node.status.heartbeat, cards=cards, slots=grown)
        try:
            await nodes.put_status(api, node, status)
        except ApiError as error:
            if not error.conflict:
                raise
        else:
            return True
    return False


async def rounds(site: Site, count: int) -> set[tuple[bool, bool]]:
    site.node("n1", [card("a")])
    extender = await site.start()
    seen = set()
    for index in range(count):
        name = f"p{index}"
        site.kube.put(
            site.node("n1", [card("a")], slots=[slot("p-old", "a", 32, 10)]) | {"spec": {"reservations": []}},
            "gaia.io/v1alpha1/gpunodes",
        )
        site.pod(name, 16, 25)
        grown, answer = await asyncio.gather(grow(site.api, "p-old", 56), bind_pod(extender, name, "n1"))
        node = site.kube.gpunode("n1") or {}
        held = node["status"]["slots"][0]["slices"][0]["held"]["memory"]
        promised = sum(units for parts in site.reservations().values() for _, units, _ in parts)
        assert held + promised <= 64
        assert grown is not (answer == ""), "exactly one wins"
        assert not answer or "is not free on n1 any more" in answer
        seen.add((grown, answer == ""))
        site.kube.remove(name)
    return seen


async def test_c07_grow_against_bind_gives_the_units_once(site: Site) -> None:
    assert await rounds(site, 40)


@pytest.mark.long
async def test_c07_grow_against_bind_five_hundred_times(site: Site) -> None:
    assert await rounds(site, 500)
