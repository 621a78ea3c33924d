"""The copy of a collection, against an API server at the level of HTTP and on its bad days."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.reflector import Backoff, Reflector
from gaia_plugin.kube.replica import Change
from tests.support.kubeapi import FakeKubeApi, pod_manifest, until
from tests.support.kubeapi.played import PlayedTime, Start

SLICE = {"gaia.io/vgpu-memory": "16"}


def names(reflector: Reflector[Pod]) -> list[str]:
    return sorted(pod.metadata.name for pod in reflector.store.values())


def listings(kube: FakeKubeApi) -> int:
    return sum("limit" in asked.query and "continue" not in asked.query for asked in kube.asked)


async def synced(kube: FakeKubeApi, reflector: Reflector[Pod]) -> None:
    await asyncio.wait_for(reflector.synced.wait(), 20)
    await until(lambda: kube.watches() == 1, "no watch")


def line(kind: str, manifest: dict[str, Any], version: int) -> bytes:
    metadata = {**manifest["metadata"], "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {**manifest, "metadata": metadata}}).encode() + b"\n"


async def test_it_lists_in_pages_and_follows(kube: FakeKubeApi, start: Start) -> None:
    for number in range(7):
        kube.put(pod_manifest(f"p{number}", limits=SLICE))
    kube.put(pod_manifest("elsewhere", node="node2"))
    reflector = start(page=3)
    await synced(kube, reflector)
    assert names(reflector) == [f"p{number}" for number in range(7)]
    assert sum("continue" in asked.query for asked in kube.asked) == 2

    made = kube.put(pod_manifest("new", limits=SLICE))
    kube.change("p0", {"status": {"phase": "Running"}})
    gone = kube.remove("p1")
    await until(lambda: gone["metadata"]["uid"] not in reflector.store)
    assert reflector.store[made["metadata"]["uid"]].metadata.name == "new"
    assert (
        next(pod for pod in reflector.store.values() if pod.metadata.name == "p0").status.phase == "Running"
    )
    assert listings(kube) == 1


async def test_it_asks_for_bookmarks_and_goes_on_from_them(kube: FakeKubeApi, start: Start) -> None:
    kube.put(pod_manifest("a"))
    reflector = start()
    await synced(kube, reflector)
    assert kube.asked[-1].query["allowWatchBookmarks"] == "true"
    for number in range(5):
        kube.put(pod_manifest(f"x{number}", node="node2"))
    kube.bookmark()
    kube.drop(politely=True)
    await until(lambda: sum("watch" in asked.query for asked in kube.asked) == 2)
    assert int(kube.asked[-1].query["resourceVersion"]) >= 106
    assert listings(kube) == 1


@pytest.mark.parametrize("in_stream", [True, False], ids=["in the stream", "as the status"])
async def test_a_forgotten_version_is_listed_anew_and_misses_no_deletion(
    kube: FakeKubeApi, start: Start, in_stream: bool
) -> None:
    for name in ("a", "b"):
        kube.put(pod_manifest(name))
    reflector = start()
    await synced(kube, reflector)
    told: list[tuple[str, str]] = []
    reflector.subscribe(lambda change: told.append((change.kind, change.item.metadata.name)))
    kube.away()
    kube.remove("a")
    kube.put(pod_manifest("c"))
    kube.compact(in_stream=in_stream)
    kube.back()
    await until(lambda: names(reflector) == ["b", "c"])
    assert told == [("added", "a"), ("added", "b"), ("gone", "a"), ("added", "c")]
    assert listings(kube) == 2


@pytest.mark.parametrize("politely", [True, False])
async def test_a_connection_that_drops_within_a_line_loses_nothing(
    kube: FakeKubeApi, start: Start, politely: bool
) -> None:
    kube.put(pod_manifest("a"))
    reflector = start()
    await synced(kube, reflector)
    for number in range(3):
        kube.drop(mid_line=True, politely=politely)
        kube.put(pod_manifest(f"p{number}"))
        await until(lambda number=number: f"p{number}" in names(reflector))  # type: ignore[misc]
    assert listings(kube) == 1


async def test_five_minutes_without_an_api_server(
    kube: FakeKubeApi, start: Start, played: PlayedTime
) -> None:
    kept = kube.put(pod_manifest("a"))["metadata"]["uid"]
    reflector = start()
    await synced(kube, reflector)
    kube.away()

    def return_after_five_minutes(now: float) -> None:
        assert kept in reflector.store, "what was known stays known"
        if now > 300:
            kube.back()

    played.on_pause = return_after_five_minutes
    await until(lambda: reflector.trouble is not None)
    kube.put(pod_manifest("b"))
    await until(lambda: names(reflector) == ["a", "b"])
    assert played.now > 300
    assert 20 < len(played.pauses) < 60
    assert max(played.pauses) <= 15
    assert reflector.trouble is None
    assert listings(kube) == 1, "the history was still there: no new list"


async def test_an_api_server_that_is_away_from_the_beginning(
    kube: FakeKubeApi, start: Start, played: PlayedTime
) -> None:
    kube.put(pod_manifest("a"))
    kube.away()
    played.on_pause = lambda now: kube.back() if now > 60 else None
    reflector = start()
    waited = asyncio.create_task(reflector.synced.wait())
    await asyncio.wait_for(waited, 20)
    assert names(reflector) == ["a"]


async def test_a_server_restored_from_a_backup_is_believed(kube: FakeKubeApi, start: Start) -> None:
    kube.put(pod_manifest("a"))
    backup = kube.save()
    kube.put(pod_manifest("b"))
    kube.change("a", {"status": {"phase": "Running"}})
    reflector = start()
    await synced(kube, reflector)
    kube.away()
    kube.restore(backup)
    kube.compact()
    kube.refuse(
        504, "Timeout", "Too large resource version", times=3, match=lambda asked: "watch" in asked.query
    )
    kube.back()
    await until(lambda: names(reflector) == ["a"])
    assert next(iter(reflector.store.values())).status.phase == "Pending"


async def test_a_name_that_comes_back_is_another_pod(kube: FakeKubeApi, start: Start) -> None:
    first = kube.put(pod_manifest("a", limits=SLICE))["metadata"]["uid"]
    reflector = start()
    await synced(kube, reflector)
    kube.remove("a")
    second = kube.put(pod_manifest("a", limits={"gaia.io/vgpu-memory": "4"}))["metadata"]["uid"]
    pod = await reflector.wait_for(second, 20)
    assert pod is not None
    assert pod.container("main").limits["gaia.io/vgpu-memory"] == "4"  # type: ignore[union-attr]
    assert set(reflector.store) == {second}
    assert await reflector.wait_for(first, 20) is None


async def test_a_name_that_came_back_while_the_server_was_away(kube: FakeKubeApi, start: Start) -> None:
    kube.put(pod_manifest("a"))
    reflector = start()
    await synced(kube, reflector)
    kinds: list[str] = []
    reflector.subscribe(lambda change: kinds.append(change.kind))
    kube.away()
    kube.remove("a")
    second = kube.put(pod_manifest("a"))["metadata"]["uid"]
    kube.compact()
    kube.back()
    await until(lambda: set(reflector.store) == {second})
    assert kinds == ["added", "gone", "added"]


async def test_events_out_of_order_change_nothing(kube: FakeKubeApi, start: Start) -> None:
    pod = kube.put(pod_manifest("a", phase="Running"))
    reflector = start()
    await synced(kube, reflector)
    old = {**pod, "status": {"phase": "Pending"}}
    gone = pod_manifest("b")
    kube.inject(
        line("MODIFIED", old, 1),
        line("DELETED", old, 2),
        line("DELETED", gone, 900),
        line("MODIFIED", gone, 899),
        line("ADDED", gone, 900),
    )
    marker = pod_manifest("marker")
    kube.inject(line("ADDED", marker, 901))
    assert await reflector.wait_for(marker["metadata"]["uid"], 20)
    assert names(reflector) == ["a", "marker"]
    assert reflector.store[pod["metadata"]["uid"]].status.phase == "Running"


async def test_what_left_the_selection_may_return(kube: FakeKubeApi, start: Start) -> None:
    uid = kube.put(pod_manifest("a"))["metadata"]["uid"]
    reflector = start(fields="spec.nodeName=node1,status.phase=Pending")
    await synced(kube, reflector)
    kube.change("a", {"status": {"phase": "Running"}})
    await until(lambda: not reflector.store)
    kube.change("a", {"status": {"phase": "Pending"}})
    await until(lambda: uid in reflector.store)


async def test_events_that_nobody_knows_and_objects_that_nobody_can_read(
    kube: FakeKubeApi, start: Start
) -> None:
    known = kube.put(pod_manifest("a"))
    reflector = start()
    await synced(kube, reflector)
    odd = {**known, "spec": {"containers": "none"}}
    kube.inject(
        b'{"type":"SURPRISE","object":{}}\n',
        b'{"type":"BOOKMARK"}\n',
        line("MODIFIED", odd, 900),
        b'{"type":"ADDED","object":{"metadata":{}}}\n',
        b'{"type":"ADDED","object":[]}\n',
        line("ADDED", {**pod_manifest("b"), "brandNew": {"deep": [1, None, {"x": 1e99}]}}, 901),
    )
    await until(lambda: names(reflector) == ["a", "b"])
    assert listings(kube) == 1


async def test_one_odd_object_does_not_hide_the_others_of_a_list(kube: FakeKubeApi, start: Start) -> None:
    known = kube.put(pod_manifest("a"))
    reflector = start()
    await synced(kube, reflector)
    kube.away()
    kube.put({**known, "spec": {"nodeName": "node1", "containers": 5}})
    kube.put(pod_manifest("b"))
    kube.put({"metadata": {"name": "c", "namespace": "default"}, "spec": {"nodeName": "node1"}})
    kube.compact()
    kube.back()
    await until(lambda: names(reflector) == ["a", "b"])


@pytest.mark.parametrize("nonsense", [b"{nonsense}\n", b"\xff\xfe\n", b"[]\n", b"null\n"])
async def test_what_is_no_event_leads_to_a_new_list(kube: FakeKubeApi, start: Start, nonsense: bytes) -> None:
    kube.put(pod_manifest("a"))
    reflector = start()
    await synced(kube, reflector)
    kube.inject(nonsense)
    await until(lambda: listings(kube) == 2)
    kube.put(pod_manifest("b"))
    await until(lambda: names(reflector) == ["a", "b"])


@pytest.mark.parametrize(
    "body", ["{}", '{"kind":"Status","metadata":{}}', "[]", '{"items":[', "null", '{"items":5}']
)
async def test_an_answer_that_is_no_list_takes_nothing_away(
    kube: FakeKubeApi, start: Start, body: str
) -> None:
    kube.put(pod_manifest("a"))
    reflector = start()
    await synced(kube, reflector)
    kinds: list[str] = []
    reflector.subscribe(lambda change: kinds.append(change.kind))
    kube.answer(body, times=3, match=lambda asked: "limit" in asked.query)
    kube.inject(b"nonsense\n")
    await until(lambda: listings(kube) == 5)
    kube.put(pod_manifest("b"))
    await until(lambda: names(reflector) == ["a", "b"])
    assert kinds == ["added", "added"]


async def test_a_bookmark_without_a_version_moves_nothing(kube: FakeKubeApi, start: Start) -> None:
    version = kube.put(pod_manifest("a"))["metadata"]["resourceVersion"]
    reflector = start()
    await synced(kube, reflector)
    kube.inject(b'{"type":"BOOKMARK"}\n', None)
    await until(lambda: sum("watch" in asked.query for asked in kube.asked) == 2)
    assert kube.asked[-1].query["resourceVersion"] == version


async def test_a_bug_does_not_end_it(
    kube: FakeKubeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reflector = start()
    await synced(kube, reflector)
    with monkeypatch.context() as patched:
        patched.setattr(reflector, "_take", lambda line: 1 / 0)
        kube.put(pod_manifest("a"))
        await until(lambda: reflector.trouble is not None)
    await until(lambda: names(reflector) == ["a"] and reflector.trouble is None)


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503])
async def test_refusals_are_waited_out(
    kube: FakeKubeApi, start: Start, played: PlayedTime, code: int
) -> None:
    kube.put(pod_manifest("a"))
    kube.refuse(code, times=5, retry_after="20")
    reflector = start()
    await synced(kube, reflector)
    assert names(reflector) == ["a"]
    assert min(played.pauses) >= 20


async def test_a_quantity_beyond_reason_is_kept_as_it_is(kube: FakeKubeApi, start: Start) -> None:
    texts = ["1e3", "1500m", "9223372036854775808", "-1", "1Ki"]
    for number, text in enumerate(texts):
        kube.put(pod_manifest(f"p{number}", limits={"gaia.io/vgpu-memory": text}))
    reflector = start(everything=False)
    await synced(kube, reflector)
    pods = sorted(reflector.store.values(), key=lambda pod: pod.metadata.name)
    assert [pod.container("main").limits["gaia.io/vgpu-memory"] for pod in pods] == texts  # type: ignore[union-attr]


async def test_pods_without_a_slice_are_left_out_of_a_whole_cluster(kube: FakeKubeApi, start: Start) -> None:
    kube.put(pod_manifest("plain"))
    kube.put(pod_manifest("a", limits=SLICE, node="node7"))
    reflector = start(fields="", everything=False)
    await synced(kube, reflector)
    assert names(reflector) == ["a"]
    kube.put(pod_manifest("plain2"))
    kube.remove("plain")
    kube.put(pod_manifest("b", limits=SLICE))
    await until(lambda: names(reflector) == ["a", "b"])


class TestWaiting:
    async def test_it_wakes_when_the_object_comes(self, kube: FakeKubeApi, start: Start) -> None:
        reflector = start()
        await synced(kube, reflector)
        manifest = pod_manifest("a")
        waiting = asyncio.create_task(reflector.wait_for(manifest["metadata"]["uid"], 20))
        await asyncio.sleep(0)
        kube.put(manifest)
        pod = await waiting
        assert pod is not None
        assert pod.metadata.name == "a"

    async def test_it_wakes_when_what_is_waited_for_holds(self, kube: FakeKubeApi, start: Start) -> None:
        uid = kube.put(pod_manifest("a"))["metadata"]["uid"]
        reflector = start()
        await synced(kube, reflector)
        waits = [
            asyncio.create_task(
                reflector.wait_for(uid, 20, lambda pod: "gaia.io/placement" in pod.annotations)
            )
            for _ in range(3)
        ]
        kube.change("a", {"status": {"phase": "Running"}})
        await until(lambda: reflector.store[uid].status.phase == "Running")
        assert not any(task.done() for task in waits)
        kube.change("a", {"metadata": {"annotations": {"gaia.io/placement": "x"}}})
        assert all(await asyncio.gather(*waits))

    async def test_it_gives_up_in_time(self, kube: FakeKubeApi, start: Start) -> None:
        reflector = start()
        await synced(kube, reflector)
        assert await reflector.wait_for("nobody", 0.02) is None
        assert await reflector.wait_for("nobody", 0) is None
        assert await reflector.wait_for("nobody", -1) is None

    async def test_it_gives_up_when_the_object_goes(self, kube: FakeKubeApi, start: Start) -> None:
        uid = kube.put(pod_manifest("a"))["metadata"]["uid"]
        reflector = start()
        await synced(kube, reflector)
        waiting = asyncio.create_task(reflector.wait_for(uid, 20, lambda pod: False))
        await asyncio.sleep(0)
        kube.remove("a")
        assert await waiting is None
        assert await reflector.wait_for(uid, 20) is None

    async def test_one_that_is_cancelled_leaves_nothing_behind(self, kube: FakeKubeApi, start: Start) -> None:
        reflector = start()
        waiting = asyncio.create_task(reflector.wait_for("nobody", 20))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not reflector._replica._waiting


class TestSubscribers:
    async def test_one_that_fails_does_not_end_the_others(self, kube: FakeKubeApi, start: Start) -> None:
        reflector = start()
        await synced(kube, reflector)
        seen: list[str] = []

        def broken(_: Change[Pod]) -> None:
            raise RuntimeError("boom")

        reflector.subscribe(broken)
        end = reflector.subscribe(lambda change: seen.append(change.item.metadata.name))
        kube.put(pod_manifest("a"))
        await until(lambda: seen == ["a"])
        end()
        end()
        kube.put(pod_manifest("b"))
        await until(lambda: len(reflector.store) == 2)
        assert seen == ["a"]

    async def test_a_change_shows_what_was_before(self, kube: FakeKubeApi, start: Start) -> None:
        kube.put(pod_manifest("a"))
        reflector = start()
        await synced(kube, reflector)
        changes: list[Change[Pod]] = []
        reflector.subscribe(changes.append)
        kube.change("a", {"status": {"phase": "Running"}})
        await until(lambda: len(changes) == 2)
        before = changes[1].before
        assert before is not None
        assert (before.status.phase, changes[1].item.status.phase) == ("Pending", "Running")

    async def test_a_write_of_our_own_is_seen_at_once(self, kube: FakeKubeApi, start: Start) -> None:
        kube.put(pod_manifest("a"))
        reflector = start()
        await synced(kube, reflector)
        pod = next(iter(reflector.store.values()))
        answer = kube.change("a", {"metadata": {"annotations": {"gaia.io/x": "1"}}})
        reflector.observe(msgspec.convert(answer, Pod))
        assert reflector.store[pod.uid].annotations == {"gaia.io/x": "1"}


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_waits_grow_within_bounds(chance: float) -> None:
    backoff = Backoff(0.2, 15.0, chance=lambda: chance)
    waits = [backoff.next() for _ in range(2000)]
    assert waits[0] == pytest.approx(0.2 * (0.5 + 0.5 * chance))
    assert waits == sorted(waits)
    assert max(waits) <= 15.0
    assert waits[-1] >= 7.5
    backoff.reset()
    assert backoff.next() == waits[0]


def test_two_nodes_do_not_wait_alike() -> None:
    first, second = Backoff(), Backoff()
    assert [first.next() for _ in range(8)] != [second.next() for _ in range(8)]
