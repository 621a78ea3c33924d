"""Reservations are dropped against reality: never by age, never by what a cache says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaia_plugin.extender import dropping
from gaia_plugin.extender.dropping import retry_key
from gaia_plugin.extender.main import Extender
from gaia_plugin.kube.errors import ApiError
from tests.support.kubeapi import status_of, until
from tests.support.kubeapi.faults import Asked
from tests.unit.extender.conftest import Ask, Site, bind_pod
from tests.unit.extender.worlds import card, reservation


def patches(kind: str) -> Any:
    return lambda asked: asked.method == "PATCH" and f"/{kind}/" in asked.path


async def settled(extender: Extender, holds: Any) -> None:
    """Sweep until something holds, as the loop does."""
    for _ in range(200):
        if holds():
            return
        await extender.sweeper.sweep()
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


async def test_c04_a_pod_that_failed_before_it_ran_gives_its_card_back_at_once(
    site: Site, filter_pod: Ask
) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 64, 100)
    site.pod("p2", 64, 100)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n1") == ""
    assert filter_pod(extender, "p2", ["n1"])["NodeNames"] == []
    site.kube.change("p1", {"status": {"phase": "Failed"}})
    await until(lambda: site.reservations() == {}, "dropped")
    await until(lambda: retry_key() in site.kube.pod("p2")["metadata"]["annotations"], "p2 is told")
    assert filter_pod(extender, "p2", ["n1"])["NodeNames"] == ["n1"]


async def test_c04_a_pod_that_vanished_while_the_extender_was_down_gives_its_card_back(
    site: Site, filter_pod: Ask
) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 64, 100)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n1") == ""
    await site.kill()
    site.kube.remove("p1")
    site.pod("p2", 64, 100)
    extender = await site.start()
    await until(lambda: site.reservations() == {}, "dropped")
    assert await bind_pod(extender, "p2", "n1") == ""


async def test_c04_a_bound_pod_keeps_its_card_however_long_its_kubelet_takes(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 64, 100)
    site.pod("p2", 64, 100)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n1") == ""
    extender.sweeper._unbound_seconds = 0.0
    extender.sweeper._waiting_since.clear()
    for _ in range(5):
        await extender.sweeper.sweep()
    assert list(site.reservations()) == ["p1"]
    assert "is not free on n1 any more" in await bind_pod(extender, "p2", "n1")


async def test_a_pod_that_runs_on_a_lost_node_keeps_what_it_has(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 64, 100)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n1") == ""
    running = {"status": {"phase": "Failed", "containerStatuses": [status_of(running={})]}}
    site.kube.change("p1", running)
    await until(lambda: extender.pods.store["p1"].terminal)
    await extender.sweeper.sweep()
    assert list(site.reservations()) == ["p1"]
    site.kube.change("p1", {"status": {"containerStatuses": [status_of(terminated={"exitCode": 0})]}})
    await settled(extender, lambda: site.reservations() == {})


async def test_a_pod_bound_elsewhere_leaves_nothing_behind(site: Site) -> None:
    site.node("n1", [card("a")], reservations=[reservation("p1", "a", 16, 25)])
    site.node("n2", [card("b")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    assert await bind_pod(extender, "p1", "n2") == ""
    await until(lambda: site.reservations("n1") == {}, "dropped")
    assert list(site.reservations("n2")) == ["p1"]


async def test_an_unbound_pod_past_its_time_is_written_before_its_reservation_is_dropped(site: Site) -> None:
    site.node("n1", [card("a")], reservations=[reservation("p1", "a", 16, 25)])
    site.pod("p1", 16, 25)
    extender = await site.start(unbound_seconds=30)
    before = site.kube.pod("p1")["metadata"]["resourceVersion"]
    await extender.sweeper.sweep()
    assert list(site.reservations()) == ["p1"], "not before its time"
    extender.sweeper._unbound_seconds = 0.0
    held = site.kube.hold_back(match=lambda asked: asked.path.endswith("/binding"))
    late = asyncio.create_task(bind_pod(extender, "p1", "n1"))
    await until(lambda: held.waiting, "a Binding is under way")
    await late
    await settled(extender, lambda: site.reservations() == {})
    assert site.kube.pod("p1")["metadata"]["resourceVersion"] != before
    assert held.deliver() == [409], "the Binding was decided upon an older pod"
    assert site.bound_to("p1") is None


async def test_a_pod_that_is_bound_while_it_is_about_to_be_given_up_keeps_its_reservation(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.node("n1", [card("a")], reservations=[reservation("p1", "a", 16, 25)])
    site.pod("p1", 16, 25)
    real = dropping.touch_pod

    async def bound_first(*given: Any) -> None:
        site.kube.change("p1", {"spec": {"nodeName": "n1"}})
        await real(*given)

    monkeypatch.setattr(dropping, "touch_pod", bound_first)
    with pytest.raises(ApiError) as caught:
        await dropping.drop_reservation(
            site.api, "n1", "p1", "gaia.io",
            pod_path="/api/v1/namespaces/default/pods/p1", overdue=True, at="now",
        )  # fmt: skip
    assert caught.value.conflict
    assert list(site.reservations()) == ["p1"]


async def test_a_drop_is_void_when_the_reservation_was_written_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.node("n1", [card("a")], reservations=[reservation("p1", "a", 16, 25)])
    site.pod("p1", 16, 25)
    extender = await site.start()
    real = dropping.touch_pod

    async def and_then_bound(*given: Any) -> None:
        await real(*given)
        assert await bind_pod(extender, "p1", "n1") == ""

    monkeypatch.setattr(dropping, "touch_pod", and_then_bound)
    with pytest.raises(ApiError) as caught:
        await dropping.drop_reservation(
            site.api, "n1", "p1", "gaia.io",
            pod_path="/api/v1/namespaces/default/pods/p1", overdue=True, at="now",
        )  # fmt: skip
    assert caught.value.conflict
    assert list(site.reservations()) == ["p1"]


async def test_a_drop_that_arrives_late_takes_nothing_from_a_bound_pod(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    site.kube.reserve(
        {"uid": "p1", "container": "main", "card": "a", "pod": "default/p1",
         "amounts": {"memory": 16, "cores": 25}}, name="n1",
    )  # fmt: skip
    await until(lambda: "p1" in extender.snapshot.reserved_on)
    held = site.kube.hold_back(match=patches("gpunodes"))
    with pytest.raises(ApiError):
        await dropping.drop_reservation(
            site.api, "n1", "p1", "gaia.io",
            pod_path="/api/v1/namespaces/default/pods/p1", overdue=True, at="now",
        )  # fmt: skip
    assert await bind_pod(extender, "p1", "n1") == ""
    assert held.deliver() == [409]
    assert list(site.reservations()) == ["p1"]


async def test_without_an_answer_nothing_is_dropped(site: Site) -> None:
    site.node("n1", [card("a")], reservations=[reservation("ghost", "a", 16, 25, pod="default/ghost")])

    def of_ghost(asked: Asked) -> bool:
        return asked.path.endswith("/pods/ghost")

    site.kube.refuse(503, match=of_ghost, times=3)
    extender = await site.start()
    await until(lambda: len([one for one in site.kube.asked if of_ghost(one)]) >= 2)
    assert list(site.reservations()) == ["ghost"]
    await settled(extender, lambda: site.reservations() == {})


async def test_a_pod_that_the_watch_has_not_shown_keeps_its_reservation(site: Site) -> None:
    site.node("n1", [card("a")])
    extender = await site.start()
    site.kube.refuse(503, times=1000, match=lambda asked: asked.path == "/api/v1/pods")
    site.kube.drop()
    await until(lambda: extender.pods.trouble is not None)
    site.pod("p1", 16, 25)
    assert await bind_pod(extender, "p1", "n1") == ""
    assert "p1" not in extender.pods.store
    await until(lambda: "p1" in extender.snapshot.reserved_on)
    await extender.sweeper.sweep()
    assert list(site.reservations()) == ["p1"]
    site.kube.heal()


async def test_a_successor_of_the_same_name_does_not_keep_it(site: Site) -> None:
    site.node("n1", [card("a")], reservations=[reservation("old", "a", 16, 25, pod="default/p1")])
    site.pod("p1", 16, 25)
    await site.start()
    await until(lambda: site.reservations() == {}, "dropped")
