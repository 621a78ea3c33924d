from __future__ import annotations

import asyncio
import random

import pytest

from gaia_plugin.deviceplugin import Device, core_ids, memory_ids, registration
from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2
from tests.kubelet.small_agent import CORES, MEMORY, UNITS, Agent, settled
from tests.support.kubelet import Pod, SimulatedKubelet, until


async def test_both_resources_are_registered_with_their_lists(kubelet: SimulatedKubelet) -> None:
    assert tuple(kubelet.listed(MEMORY)) == memory_ids(UNITS)
    assert kubelet.allocatable(CORES) == kubelet.capacity(CORES) == 200
    endpoint = kubelet.endpoint(MEMORY)
    assert endpoint is not None
    assert endpoint.options.pre_start_required
    assert not endpoint.options.get_preferred_allocation_available


async def test_the_agent_waits_for_a_kubelet_that_comes_later(
    kubelet_not_up: SimulatedKubelet, agent: Agent
) -> None:
    agent.start()
    await asyncio.sleep(0)
    assert not kubelet_not_up.directory.exists()
    async with kubelet_not_up as kubelet:
        await kubelet.registered(MEMORY, CORES)


async def test_a_socket_with_nobody_behind_it_is_tried_until_somebody_is(
    kubelet_not_up: SimulatedKubelet, agent: Agent
) -> None:
    await kubelet_not_up.come_up()
    await kubelet_not_up.go_down(killed=True)
    agent.start()
    await until(lambda: agent.plugins[MEMORY].serving)
    await kubelet_not_up.come_up()
    await kubelet_not_up.registered(MEMORY, CORES)
    await kubelet_not_up.go_down()


async def test_a_kubelet_that_refuses_is_asked_again(kubelet: SimulatedKubelet, agent: Agent) -> None:
    await agent.stop()
    kubelet.refuse_registrations = "not yet"
    agent.start()
    await until(lambda: agent.plugins[CORES].serving)
    kubelet.refuse_registrations = ""
    await settled(kubelet, agent)


async def test_registered_again_after_the_kubelet_restarted(kubelet: SimulatedKubelet, agent: Agent) -> None:
    pod = await kubelet.run(Pod.of({MEMORY: 16, CORES: 25}))
    ids, message = kubelet.ids(pod), kubelet.last_message(MEMORY)
    calls = len(agent.handler.allocated), len(agent.handler.prestarted)
    await kubelet.restart()
    await settled(kubelet, agent)
    assert kubelet.last_message(MEMORY) == message
    assert kubelet.ids(pod) == ids
    assert pod.running
    assert (len(agent.handler.allocated), len(agent.handler.prestarted)) == calls
    assert await kubelet.restart_container(pod)


async def test_a_new_kubelet_is_noticed_also_when_it_left_the_plugins_sockets(
    kubelet: SimulatedKubelet, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PATIENCE", 3600.0)
    await kubelet.go_down(killed=True)
    await kubelet.come_up(keep_sockets=True)
    await settled(kubelet, agent)


async def test_a_container_restarted_before_the_plugin_is_back_waits_for_it(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    pod = await kubelet.run(Pod.of({MEMORY: 16}))
    await agent.stop()
    await kubelet.restart()
    assert not await kubelet.restart_container(pod)
    assert pod.container("main").reason == "CreateContainerConfigError"
    agent.start()
    await kubelet.registered(MEMORY)
    await kubelet.until_running(pod)


@pytest.mark.parametrize("resource", [MEMORY, CORES])
async def test_registered_again_when_its_own_socket_is_deleted(
    kubelet: SimulatedKubelet, agent: Agent, resource: str
) -> None:
    before = len(kubelet.registrations)
    agent.plugins[resource].socket.unlink()
    await until(lambda: resource in {each for each, _ in kubelet.registrations[before:]})
    await kubelet.registered(resource)
    assert agent.plugins[resource].serving
    assert (await kubelet.run(Pod.of({MEMORY: 1, CORES: 1}))).running


async def test_registered_again_when_the_kubelet_dropped_the_list_alone(
    kubelet: SimulatedKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PATIENCE", 0.1)
    before = len(kubelet.registrations)
    endpoint = kubelet.endpoint(MEMORY)
    assert endpoint is not None
    await endpoint.close()
    await until(lambda: MEMORY in {each for each, _ in kubelet.registrations[before:]})
    await kubelet.registered(MEMORY)


async def test_without_an_agent_nothing_is_allocatable_and_pods_are_refused(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    await agent.stop()
    await until(lambda: kubelet.allocatable(MEMORY) == 0)
    pod = Pod.of({MEMORY: 1})
    assert not await kubelet.admit(pod)
    assert "no healthy devices present" in pod.message
    assert not list(kubelet.plugins.glob("*gaia*"))


async def test_a_change_reaches_the_kubelet_once_and_as_a_whole(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    endpoint = kubelet.endpoint(MEMORY)
    assert endpoint is not None
    sent = len(endpoint.messages)
    ids = [*memory_ids(UNITS + 8)]
    random.Random(3).shuffle(ids)
    agent.plugins[MEMORY].update([Device(each, each < "mem-00010") for each in ids])
    agent.plugins[MEMORY].update([Device(each, each < "mem-00010") for each in reversed(ids)])
    await until(lambda: kubelet.capacity(MEMORY) == UNITS + 8)
    assert kubelet.allocatable(MEMORY) == 10
    assert len(endpoint.messages) == sent + 1
    listed = api_pb2.ListAndWatchResponse.FromString(endpoint.messages[-1]).devices
    assert tuple(device.ID for device in listed) == memory_ids(UNITS + 8)


async def test_no_list_is_sent_before_there_is_one(kubelet: SimulatedKubelet, agent: Agent) -> None:
    await agent.stop()
    before = len(kubelet.registrations)
    agent.start(lists=False)
    await until(lambda: len(kubelet.registrations) >= before + 2)
    endpoint = kubelet.endpoint(MEMORY)
    assert endpoint is not None
    assert endpoint.messages == []
    agent.plugins[MEMORY].update([])
    await until(lambda: endpoint.messages == [b""])


async def test_the_list_for_eight_large_cards_passes_through_one_message(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    units = 8 * (143_771 // 256)
    assert units == 4488
    agent.plugins[MEMORY].update([Device(each) for each in memory_ids(units)])
    await until(lambda: kubelet.allocatable(MEMORY) == units)
    assert len(kubelet.last_message(MEMORY)) < 1 << 20


async def test_a_list_above_4_mib_would_leave_the_node_with_nothing(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    """What `check_size` is for: the kubelet drops the plugin, and says so only in its own log."""
    agent.plugins[MEMORY].update([Device(each) for each in memory_ids(200_000)])
    endpoint = kubelet.endpoint(MEMORY)
    assert endpoint is not None
    await until(lambda: endpoint.stopped)
    assert "ResourceExhausted" in (endpoint.fault or "")
    assert endpoint.healthy == set()


async def test_fifty_restarts_of_both_in_any_order_change_nothing(
    kubelet: SimulatedKubelet, agent: Agent
) -> None:
    chance = random.Random(50)
    core_list = kubelet.last_message(CORES)
    memory_list = kubelet.last_message(MEMORY)
    pods = [await kubelet.run(Pod.of({MEMORY: 10, CORES: 30})) for _ in range(3)]
    ids = [kubelet.ids(pod) for pod in pods]
    environments = [pod.container("main").edits for pod in pods]
    for _ in range(50):
        for what in chance.choice([("kubelet",), ("agent",), ("kubelet", "agent"), ("agent", "kubelet")]):
            await (kubelet.restart() if what == "kubelet" else agent.restart())
        await settled(kubelet, agent)
        assert kubelet.last_message(MEMORY) == memory_list
        assert kubelet.last_message(CORES) == core_list
        assert [kubelet.ids(pod) for pod in pods] == ids
        assert all(pod.running for pod in pods)
        again = chance.randrange(3)
        assert await kubelet.restart_container(pods[again])
        assert pods[again].container("main").edits == environments[again]
    assert len(agent.handler.allocated) == 6
    assert tuple(kubelet.listed(CORES)) == core_ids(200)


async def test_a_kubelet_that_is_not_there_is_told_once(
    kubelet_not_up: SimulatedKubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    told = asyncio.create_task(registration.tell_missing(kubelet_not_up.directory, poll=0.0))
    text = ""

    def said() -> bool:
        nonlocal text
        text += capsys.readouterr().out
        return "no kubelet yet" in text

    await until(said)
    for _ in range(20):
        await asyncio.sleep(0)
    text += capsys.readouterr().out
    told.cancel()
    assert text.count("no kubelet yet") == 1
