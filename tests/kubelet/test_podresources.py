from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from gaia_plugin.deviceplugin import PodResources
from gaia_plugin.errors import Code, Refusal
from tests.kubelet.small_agent import CORES, MEMORY, Agent
from tests.support.kubelet import Container, Kind, Pod, SimulatedKubelet, until


@pytest.fixture
async def pod_resources(kubelet: SimulatedKubelet, agent: Agent) -> AsyncIterator[PodResources]:
    pod_resources = PodResources(kubelet.directory, agent.quiet)
    yield pod_resources
    await pod_resources.close()


@pytest.mark.parametrize("get", ["enabled", "disabled", "missing"])
async def test_the_ids_of_each_container_are_gathered(
    kubelet: SimulatedKubelet, pod_resources: PodResources, get: str
) -> None:
    kubelet.pod_resources.get = get
    pod = await kubelet.run(
        Pod(
            [
                Container("init", {MEMORY: 2}, Kind.INIT),
                Container("side", {CORES: 3}, Kind.SIDECAR),
                Container("main", {MEMORY: 4, CORES: 5}),
                Container("idle", {}),
            ]
        )
    )
    found = await pod_resources.get(pod.namespace, pod.name)
    assert found == {
        "side": kubelet.ids(pod, "side"),
        "main": kubelet.ids(pod, "main"),
        "idle": {},
    }
    assert await pod_resources.get(pod.namespace, "nobody") == {}
    assert await pod_resources.get("elsewhere", pod.name) == {}
    calls = kubelet.pod_resources.calls
    assert calls == (["Get"] * 3 if get == "enabled" else ["Get", "List", "List", "List"])


async def test_a_hundred_questions_at_once_are_all_answered(
    kubelet: SimulatedKubelet, pod_resources: PodResources
) -> None:
    pod = await kubelet.run(Pod.of({MEMORY: 4}))
    answers = await asyncio.gather(*(pod_resources.get("default", pod.name) for _ in range(100)))
    assert answers == [{"main": kubelet.ids(pod)}] * 100
    assert kubelet.pod_resources.exhausted > 0


async def test_faults_that_pass_are_asked_again_and_others_are_said(
    kubelet: SimulatedKubelet, pod_resources: PodResources
) -> None:
    pod = await kubelet.run(Pod.of({MEMORY: 4}))
    kubelet.pod_resources.faults = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert await pod_resources.get("default", pod.name) == {"main": kubelet.ids(pod)}
    kubelet.pod_resources.faults = [grpc.StatusCode.INTERNAL]
    with pytest.raises(Refusal, match=r"which devices this pod has \(INTERNAL: as the test wished\)") as said:
        await pod_resources.get("default", pod.name)
    assert said.value.code is Code.UNAVAILABLE


async def test_a_kubelet_that_is_away_is_waited_for_and_then_given_up(
    kubelet: SimulatedKubelet, pod_resources: PodResources
) -> None:
    pod = await kubelet.run(Pod.of({MEMORY: 4}))
    ids = kubelet.ids(pod)
    await kubelet.go_down()
    asking = asyncio.create_task(pod_resources.get("default", pod.name))
    impatient = PodResources(kubelet.directory, patience=0.05)
    with pytest.raises(Refusal, match="UNAVAILABLE"):
        await impatient.get("default", pod.name)
    await impatient.close()
    await kubelet.come_up()
    assert await asking == {"main": ids}


async def test_the_list_is_not_read_while_an_allocate_is_under_way(
    kubelet: SimulatedKubelet, agent: Agent, pod_resources: PodResources
) -> None:
    kubelet.pod_resources.get = "missing"
    await pod_resources.get("default", "nobody")
    kubelet.pod_resources.calls.clear()
    with agent.quiet.broken():
        asking = asyncio.create_task(pod_resources.get("default", "nobody"))
        await asyncio.sleep(0)
        assert await agent.quiet.wait(0.1) is False
        assert kubelet.pod_resources.calls == []
    assert await asking == {}
    assert kubelet.pod_resources.calls == ["List"]


async def test_allocates_without_a_pause_are_said(
    place: Path, agent: Agent, kubelet: SimulatedKubelet
) -> None:
    kubelet.pod_resources.get = "missing"
    impatient = PodResources(kubelet.directory, agent.quiet, patience=0.2)
    with agent.quiet.broken(), pytest.raises(Refusal, match="without a pause"):
        await impatient.get("default", "nobody")
    await impatient.close()


async def test_an_allocate_breaks_the_quiet(kubelet: SimulatedKubelet, agent: Agent) -> None:
    await until(lambda: agent.quiet.now)
    assert await kubelet.admit(Pod.of({MEMORY: 4}))
    assert agent.quiet.now is False
    assert await agent.quiet.wait(5)
