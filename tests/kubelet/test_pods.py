from __future__ import annotations

import asyncio
import random

import pytest

from gaia_plugin.deviceplugin import PodResources, entries
from tests.kubelet.small_agent import CORES, MEMORY, Agent
from tests.support.kubelet import Container, Kind, Pod, SimulatedKubelet


def told(pod: Pod, container: str = "main") -> dict[str, str]:
    """What the container found in its environment, by resource."""
    edits = pod.container(container).edits
    assert edits is not None
    return edits.env


def expected(pod: Pod, memory: int, cores: int, container: str = "main") -> dict[str, str]:
    return {
        "GAIA_MEMORY": f"{pod.uid}/{container}/{memory}",
        "GAIA_CORES": f"{pod.uid}/{container}/{cores}",
    }


@pytest.mark.parametrize("order", [(MEMORY, CORES), (CORES, MEMORY)])
@pytest.mark.parametrize("starting", [(MEMORY, CORES), (CORES, MEMORY)])
async def test_either_resource_may_come_first(
    kubelet: SimulatedKubelet, agent: Agent, order: tuple[str, ...], starting: tuple[str, ...]
) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    assert await kubelet.admit(pod, order=order)
    assert [resource for resource, _, _ in agent.handler.allocated] == list(order)
    assert agent.handler.prestarted == []
    assert await kubelet.start(pod, order=starting)
    assert [resource for resource, _ in agent.handler.prestarted] == list(starting)
    assert told(pod) == expected(pod, 16, 25)


async def test_the_names_of_allocate_are_kept_and_resolved(kubelet: SimulatedKubelet, agent: Agent) -> None:
    pod = await kubelet.run(Pod.of({MEMORY: 16, CORES: 25}))
    names = {name for _, _, name in agent.handler.allocated}
    assert set(pod.container("main").cdi_names) == names
    assert {name for entry in entries(kubelet.directory) for name in entry.cdi_names} == names
    await kubelet.restart()
    await kubelet.registered(MEMORY, CORES)
    assert await kubelet.restart_container(pod)
    assert set(pod.container("main").cdi_names) == names


async def test_a_container_restart_brings_the_same_ids_and_no_allocate(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    pod = await kubelet.run(Pod.of({MEMORY: 16, CORES: 25}))
    ids = kubelet.ids(pod)
    for restarts in range(1, 11):
        agent.handler.prestarted.clear()
        assert await kubelet.restart_container(pod)
        assert dict(agent.handler.prestarted) == ids
        assert pod.container("main").restarts == restarts
    assert len(agent.handler.allocated) == 2


async def test_a_refusal_is_shown_to_the_user_and_tried_again(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    agent.handler.refusal = "No card has 4 GiB left; 3.5 GiB would fit."
    pod = Pod.of({MEMORY: 16, CORES: 25})
    assert await kubelet.admit(pod)
    ids = kubelet.ids(pod)
    assert not await kubelet.start(pod)
    container = pod.container("main")
    assert container.reason == "CreateContainerConfigError"
    assert container.message == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition "
        "desc = No card has 4 GiB left; 3.5 GiB would fit."
    )
    assert pod.phase == "Pending"
    agent.handler.refusal = ""
    await kubelet.until_running(pod)
    assert kubelet.ids(pod) == ids
    assert container.restarts == 0
    assert len(agent.handler.allocated) == 2


async def test_a_fault_of_the_agent_is_not_shown_but_said(kubelet: SimulatedKubelet, agent: Agent) -> None:
    pod = Pod.of({MEMORY: 16})
    assert await kubelet.admit(pod)
    agent.handler.fault = ZeroDivisionError("an inner matter")
    assert not await kubelet.start(pod)
    assert "its log has the fault" in pod.container("main").message
    assert "inner matter" not in pod.container("main").message
    agent.handler.fault = None
    await kubelet.until_running(pod)


async def test_a_fault_in_allocate_is_final_for_that_pod_alone(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    agent.handler.fault = OSError("no space left on device")
    pod = Pod.of({MEMORY: 64, CORES: 25})
    assert not await kubelet.admit(pod)
    assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")
    assert pod.message.startswith("Pod was rejected: Allocate failed due to rpc error: code = Internal")
    agent.handler.fault = None
    assert told(await kubelet.run(Pod.of({MEMORY: 64})))["GAIA_MEMORY"].endswith("/64")


async def test_more_than_there_is_never_reaches_prestart(kubelet: SimulatedKubelet, agent: Agent) -> None:
    await kubelet.run(Pod.of({MEMORY: 60, CORES: 25}))
    agent.handler.prestarted.clear()
    pod = Pod.of({MEMORY: 5, CORES: 25})
    assert not await kubelet.admit(pod, order=(CORES, MEMORY))
    assert f"unavailable for {MEMORY}. Requested: 5, Available: 4" in pod.message
    assert agent.handler.allocated[-1][0] == CORES  # answered, and nothing ever follows
    assert agent.handler.prestarted == []
    assert await kubelet.run(Pod.of({MEMORY: 4, CORES: 175}))


async def test_ids_come_in_any_order(kubelet: SimulatedKubelet, agent: Agent) -> None:
    """The handler gets sets; what the kubelet sends is shuffled each time."""
    pod = await kubelet.run(Pod.of({MEMORY: 64}))
    assert agent.handler.prestarted == [(MEMORY, kubelet.ids(pod)[MEMORY])]
    assert len({tuple(kubelet.devices.shuffled(kubelet.ids(pod)[MEMORY])) for _ in range(5)}) == 5


async def test_the_same_ids_in_two_pods_keep_their_names_apart(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    first = await kubelet.run(Pod.of({MEMORY: 16, CORES: 25}))
    second = Pod.of({MEMORY: 16, CORES: 25})
    assert await kubelet.admit(second, same_ids_as=first)
    await kubelet.until_running(second)
    assert kubelet.ids(first) == kubelet.ids(second)
    assert not set(first.container("main").cdi_names) & set(second.container("main").cdi_names)
    for pod in (first, second, first):
        assert await kubelet.restart_container(pod)
        assert told(pod) == expected(pod, 16, 25)


async def test_a_list_while_an_allocate_is_in_flight_hands_ids_out_twice(
    kubelet: SimulatedKubelet,
) -> None:
    """The kubelet's own fault: the agent must never provoke it, others may, and it must be survived."""
    ends = await kubelet.run(Pod.of({CORES: 1}))
    somebody_else = PodResources(kubelet.directory)
    kubelet.pod_resources.get = "missing"

    async def end_and_list() -> None:
        kubelet.finish(ends)
        await somebody_else.get("default", "any")

    kubelet.devices.in_flight = end_and_list
    first = await kubelet.run(Pod.of({MEMORY: 64}))
    kubelet.devices.in_flight = None
    second = await kubelet.run(Pod.of({MEMORY: 64}))
    assert kubelet.ids(first) == kubelet.ids(second)
    for pod in (first, second, first):
        assert await kubelet.restart_container(pod)
        assert told(pod) == {"GAIA_MEMORY": f"{pod.uid}/main/64"}
    await somebody_else.close()


async def test_a_pod_made_again_under_its_name_while_the_first_still_runs(
    kubelet: SimulatedKubelet,
) -> None:
    first = await kubelet.run(Pod.of({MEMORY: 64, CORES: 200}, "jupyter-alice"))
    ids = kubelet.ids(first)
    await kubelet.force_delete(first)
    second = await kubelet.run(first.again())
    assert (second.name, second.namespace) == (first.name, first.namespace)
    assert kubelet.ids(second) == ids
    assert first.container("main").running
    assert not set(first.container("main").cdi_names) & set(second.container("main").cdi_names)
    assert told(second) == expected(second, 64, 200)
    kubelet.kill(first)


async def test_the_next_owner_of_a_whole_node_gets_names_of_its_own(kubelet: SimulatedKubelet) -> None:
    """Also where the runtime keeps what it once read: a name that never recurs cannot be stale."""
    kubelet.runtime.stale = True
    names: set[str] = set()
    for _ in range(20):
        pod = await kubelet.run(Pod.of({MEMORY: 64, CORES: 200}))
        assert told(pod) == expected(pod, 64, 200)
        assert not names & set(pod.container("main").cdi_names)
        names |= set(pod.container("main").cdi_names)
        await kubelet.delete(pod)


async def test_a_name_without_a_spec_does_not_start_and_heals(
    kubelet: SimulatedKubelet, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = agent.handler._write
    lost: list[str] = []

    def lose_the_first(name: str, variable: str) -> None:
        if lost:
            write(name, variable)
        lost.append(name)

    monkeypatch.setattr(agent.handler, "_write", lose_the_first)
    pod = Pod.of({MEMORY: 16, CORES: 25})
    assert await kubelet.admit(pod)
    assert not await kubelet.start(pod)
    assert pod.container("main").reason == "CreateContainerError"
    assert pod.container("main").message.endswith(f"unresolvable CDI devices {lost[0]}")
    assert await kubelet.start(pod)


async def test_sidecars_are_containers_and_a_plain_init_container_shares_ids(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    pod = Pod(
        [
            Container("init", {MEMORY: 4}, Kind.INIT),
            Container("side", {MEMORY: 4}, Kind.SIDECAR),
            Container("main", {MEMORY: 4}),
        ]
    )
    await kubelet.run(pod)
    init, side, main = (kubelet.ids(pod, name)[MEMORY] for name in ("init", "side", "main"))
    assert init & (side | main)
    assert not side & main
    assert {entry.container for entry in entries(kubelet.directory)} == {"init", "side", "main"}
    assert told(pod, "side") == {"GAIA_MEMORY": f"{pod.uid}/side/4"}


async def test_two_pods_of_other_sizes_never_swap(kubelet: SimulatedKubelet, agent: Agent) -> None:
    """Case C01: 200 times in any order, with both pods admitted before either starts."""
    chance = random.Random(1)
    for _ in range(200):
        a, b = Pod.of({CORES: 20, MEMORY: 4}), Pod.of({CORES: 20, MEMORY: 12})
        for pod in (b, a):
            assert await kubelet.admit(pod, order=chance.sample((CORES, MEMORY), 2))
        await asyncio.gather(kubelet.until_running(a), kubelet.until_running(b))
        assert told(a) == expected(a, 4, 20)
        assert told(b) == expected(b, 12, 20)
        await kubelet.delete(a)
        await kubelet.delete(b)


async def test_a_pod_on_a_node_that_never_had_a_plugin_runs_without_devices(
    kubelet_not_up: SimulatedKubelet,
) -> None:
    async with kubelet_not_up as kubelet:
        pod = await kubelet.run(Pod.of({MEMORY: 16}))
    assert told(pod) == {}
    assert pod.as_api()["status"]["containerStatuses"][0]["state"] == {
        "running": {"startedAt": "2026-01-01T00:00:00Z"}
    }
