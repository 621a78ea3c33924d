from __future__ import annotations

from typing import Any

import pytest

from gaia_plugin.kube.client import Api
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.writes import annotate, delete_pod, read_pod, tell
from tests.support.kubeapi import FakeKubeApi, pod_manifest

KEY = "gaia.io/placement"


def is_patch(asked: Any) -> bool:
    return bool(asked.method == "PATCH")


async def made(kube: FakeKubeApi, api: Api, name: str = "a") -> Pod:
    kube.put(pod_manifest(name))
    return await read_pod(api, "default", name)


async def test_an_annotation_is_written_and_the_others_stay(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    after = await annotate(api, pod, {KEY: "x"})
    assert after.annotations[KEY] == "x"
    assert int(after.metadata.version) > int(pod.metadata.version)
    assert kube.pod("a")["metadata"]["annotations"].keys() == {KEY, "other.io/note"}
    sent = kube.asked[-1]
    assert sent.headers["content-type"] == "application/merge-patch+json"
    assert sent.body is not None
    assert sent.body["metadata"]["uid"] == pod.uid
    assert sent.body["metadata"]["resourceVersion"] == pod.metadata.version
    assert KEY not in (await annotate(api, after, {KEY: None})).annotations


async def test_a_report_of_the_kubelet_in_between_does_not_matter(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.change("a", {"status": {"phase": "Running"}})
    after = await annotate(api, pod, {KEY: "x"})
    assert (after.annotations[KEY], after.status.phase) == ("x", "Running")


async def test_an_annotation_that_somebody_else_wrote_is_not_overwritten(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.change("a", {"metadata": {"annotations": {KEY: "theirs"}}})
    with pytest.raises(ApiError) as caught:
        await annotate(api, pod, {KEY: "ours"})
    assert caught.value.conflict
    assert kube.pod("a")["metadata"]["annotations"][KEY] == "theirs"


async def test_an_annotation_whose_answer_was_lost_is_not_written_twice(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.change("a", {"metadata": {"annotations": {KEY: "ours"}}})
    version = kube.pod("a")["metadata"]["resourceVersion"]
    assert (await annotate(api, pod, {KEY: "ours"})).metadata.version == version


async def test_a_pod_of_the_same_name_is_not_annotated(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.remove("a")
    kube.put(pod_manifest("a"))
    with pytest.raises(ApiError) as caught:
        await annotate(api, pod, {KEY: "x"})
    assert caught.value.conflict
    assert KEY not in kube.pod("a")["metadata"]["annotations"]


async def test_a_pod_that_changes_all_the_time_is_given_up(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.refuse(409, "Conflict", times=100, match=is_patch)
    with pytest.raises(ApiError) as caught:
        await annotate(api, pod, {KEY: "x"})
    assert caught.value.conflict
    assert sum(is_patch(asked) for asked in kube.asked) == 4


async def test_another_uid_may_be_answered_as_invalid(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.refuse(422, "Invalid", "metadata.uid: Invalid value: field is immutable", times=9, match=is_patch)
    with pytest.raises(ApiError) as caught:
        await annotate(api, pod, {KEY: "x"})
    assert caught.value.conflict


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (500, "InternalError"), (422, "Invalid")])
async def test_a_refusal_is_told(kube: FakeKubeApi, api: Api, code: int, reason: str) -> None:
    pod = await made(kube, api)
    kube.refuse(code, reason, match=is_patch)
    with pytest.raises(ApiError) as caught:
        await annotate(api, pod, {KEY: "x"})
    assert (caught.value.status, caught.value.conflict) == (code, False)


async def test_an_answer_that_is_lost_is_no_refusal(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.away()
    with pytest.raises(ApiError) as caught:
        await annotate(api, pod, {KEY: "x"})
    assert caught.value.no_answer
    with pytest.raises(ApiError):
        await delete_pod(api, pod)


async def test_a_pod_is_deleted(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    assert await delete_pod(api, pod)
    assert (await read_pod(api, "default", "a")).terminating
    assert kube.asked[-2].body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": pod.uid},
    }
    assert await delete_pod(api, pod, grace=0)
    assert not kube.all()
    assert not await delete_pod(api, pod), "it is gone already"


async def test_a_pod_of_the_same_name_is_not_deleted(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.remove("a")
    other = kube.put(pod_manifest("a"))
    assert not await delete_pod(api, pod, grace=0)
    assert kube.pod("a") == other


async def test_an_event_is_about_exactly_this_pod(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    sentence = "No card has 8 GiB free now: the largest free slice is 4 GiB."
    for _ in range(2):
        assert await tell(
            api, pod, "NoRoom", sentence, reporter="gaia.io/agent", instance="node1", container="main"
        )
    event = kube.events[0]
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "a",
        "uid": pod.uid,
        "fieldPath": "spec.containers{main}",
    }
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "NoRoom", sentence)
    assert (event["reportingController"], event["reportingInstance"]) == ("gaia.io/agent", "node1")
    assert len({each["metadata"]["name"] for each in kube.events}) == 2


async def test_an_event_fits_whatever_it_says(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api, "a" * 199 + ".b")
    assert await tell(api, pod, "NoRoom", "ä" * 5000, reporter="gaia.io/agent", instance="n" * 300)
    event = kube.events[0]
    assert len(event["note"].encode()) <= 1024
    assert len(event["metadata"]["name"]) <= 253
    assert ".." not in event["metadata"]["name"]
    assert len(event["reportingInstance"]) <= 128


async def test_an_event_that_fails_fails_nothing_else(kube: FakeKubeApi, api: Api) -> None:
    pod = await made(kube, api)
    kube.refuse(403, "Forbidden")
    assert not await tell(api, pod, "NoRoom", "x", reporter="gaia.io/agent", instance="node1")
    kube.away()
    assert not await tell(api, pod, "NoRoom", "x", reporter="gaia.io/agent", instance="node1")
