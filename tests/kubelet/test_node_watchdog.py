"""What slips past the library is found, told and booked; who takes what a card does not have is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gaia_plugin import __version__
from gaia_plugin.agent import loops
from gaia_plugin.agent.pods import findings, watchdog
from gaia_plugin.agent.pods.unmanaged import Kind
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.shares import Share
from gaia_plugin.units import MIB
from tests.kubelet.node_world import CORES, MEMORY
from tests.kubelet.watch_world import Watched, watched_node
from tests.support.kubeapi import FakeKubeApi
from tests.support.kubelet import until

CONTEXT = 300
QUARTER = {MEMORY: 8, CORES: 25}
"""2 GiB of a card of 8."""
THIS_LIBRARY = 1 << 16  # 0.1.0
OLD_LIBRARY = 1 << 8 | 9


@pytest.fixture
async def watched(place: Path, kube: FakeKubeApi) -> AsyncIterator[Watched]:
    """A node with two simulated cards of 8 GiB."""
    async with watched_node(place, kube, 2) as watched:
        yield watched


async def told(watched: Watched, count: int) -> list[tuple[str, str, str]]:
    await until(lambda: len(watched.events) >= count)
    return watched.events


async def test_a_process_without_the_library_is_told_in_the_second_round(watched: Watched) -> None:
    pod = await watched.run(QUARTER)
    rogue = watched.start(pod, 1024)
    await watched.rounds(1)
    assert watched.findings.found == ()
    assert watched.condition.status == "False"
    await watched.rounds(1)
    (found,) = watched.findings.found
    assert (found.subject.kind, found.pod) == (Kind.NO_LIBRARY, f"default/{pod.name}")
    assert (found.sight.pids, found.sight.bytes) == ((rogue.pid,), (1024 + CONTEXT) * MIB)
    ((name, reason, note),) = await told(watched, 1)
    assert (name, reason) == (pod.name, "NoLibrary")
    assert f"Process {rogue.pid}" in note
    assert "holds 1.3 GiB of card 0" in note
    assert (watched.condition.type, watched.condition.status) == ("UnmanagedProcesses", "True")
    assert watched.condition.message == f"default/{pod.name}: {found.sentence}"
    await loops.observe(watched.world.agent.node)
    view = await watched.world.agent.node.slot(watched.world.slot(pod))
    assert view.note == found.sentence
    assert view.used == found.sight.bytes, "what is past the library is in use all the same"
    assert [process.memory for process in view.processes] == [view.used]
    assert watched.findings.foreign == {}
    card = found.subject.card
    assert watched.world.agent.node.watched().unmanaged == {(card, "no_library"): 1}


async def test_what_is_found_is_told_again_when_it_changes_or_after_ten_minutes(
    watched: Watched,
) -> None:
    pod = await watched.run(QUARTER)
    watched.start(pod, 256)
    await watched.rounds(6)
    await told(watched, 1)
    watched.start(pod, 256)
    await watched.rounds(2)
    assert len(watched.findings.found[0].sight.pids) == 2
    assert len(watched.events) == 1  # programs start and end all the time
    watched.world.ahead += findings.CHANGED_SECONDS
    await watched.rounds(2)
    assert "Processes" in (await told(watched, 2))[1][2]
    watched.world.ahead += findings.AGAIN_SECONDS - 1
    await watched.rounds(2)
    assert len(watched.events) == 2
    watched.world.ahead += 1
    await watched.rounds(2)
    await told(watched, 3)


async def test_the_condition_keeps_its_time_while_its_status_stays(watched: Watched) -> None:
    pod = await watched.run(QUARTER)
    await watched.rounds(1)
    quiet = watched.condition
    rogue = watched.start(pod, 256)
    await watched.rounds(2)
    loud = watched.condition
    assert loud.last_transition_time >= quiet.last_transition_time
    rogue.hold(1024)
    watched.world.ahead += watchdog.REWORD
    await watched.rounds(1)
    assert watched.condition.message != loud.message
    assert watched.condition.last_transition_time == loud.last_transition_time
    rogue.end()
    await watched.rounds(1)
    assert watched.condition.status == "False"
    assert (await watched.world.agent.node.slot(watched.world.slot(pod))).note == ""


async def test_who_is_registered_is_not_told(watched: Watched) -> None:
    pod = await watched.run(QUARTER)
    program = watched.start(pod, 1024)
    watched.register(pod, program.pid, used=1024 * MIB, library=THIS_LIBRARY)
    await watched.rounds(3)
    assert watched.findings.found == ()
    assert watched.findings.libraries == {__version__: 1}
    assert watched.events == []


async def test_another_version_of_the_library_is_told_beside_the_slot(watched: Watched) -> None:
    pod = await watched.run(QUARTER)
    program = watched.start(pod, 256)
    watched.register(pod, program.pid, used=256 * MIB, library=OLD_LIBRARY)
    await watched.rounds(1)
    assert watched.findings.libraries == {"0.0.265": 1}
    view = await watched.world.agent.node.slot(watched.world.slot(pod))
    assert view.note.startswith("1 program has version 0.0.265 of Gaia's library loaded")


async def test_what_a_container_without_a_slice_has_is_not_given_away(watched: Watched) -> None:
    idle = await watched.run({})
    pod = await watched.run(QUARTER, annotations={"gaia.io/vgpu-max-memory": "32"})
    assert watched.free() == Share(24, 75)
    rogue = watched.start(idle, 4096)
    await watched.rounds(2)
    (found,) = watched.findings.found
    assert found.subject.kind is Kind.NO_SLICE
    assert watched.free() == Share(24 - 18, 75)  # 4 GiB and a context
    assert watched.free(1) == Share(32, 100)
    with pytest.raises(Refusal) as refused:
        await watched.world.agent.node.resize(watched.world.slot(pod), models.Resize(memory="4GiB"), None)
    assert refused.value.code is Code.CARD_FULL
    assert refused.value.best_memory == (8 + 6) * 256 * MIB
    ((name, reason, _),) = await told(watched, 1)
    assert (name, reason) == (idle.name, "NoSlice")
    rogue.end()
    await watched.rounds(1)
    assert watched.free() == Share(24, 75)


async def test_a_program_of_the_machine_counts_and_is_told_on_the_node(watched: Watched) -> None:
    healthy = watched.world.kubelet.devices.endpoints[MEMORY]
    await until(lambda: len(healthy.healthy) == 64)
    rogue = watched.start(None, 1748)  # with its context exactly 2 GiB
    await watched.rounds(2)
    assert watched.free() == Share(24, 100)
    await until(lambda: len(healthy.healthy) == 64 - 8)
    assert watched.events == []
    assert f"Process {rogue.pid} (python" in watched.condition.message
    assert "of this machine, outside of any pod, holds 2 GiB of card 0" in watched.condition.message
    facts = await watched.world.agent.node.do(watched.world.agent.core.facts)
    assert [card.units for card in facts.cards] == [24, 32]


async def test_memory_that_no_list_explains_is_not_given_away(watched: Watched) -> None:
    watched.world.cards.silent = True  # type: ignore[attr-defined]
    pod = await watched.run(QUARTER)
    program = watched.start(pod, 1024)
    watched.register(pod, program.pid, used=1024 * MIB)
    await watched.rounds(3)
    assert watched.findings.foreign == {}  # its slot holds more than that
    watched.start(None, 4096)
    await watched.rounds(2)
    assert watched.findings.foreign == {}
    await watched.rounds(1)
    # 4,396 of 5,720 MiB: the slot without figures is taken to use all its 2 GiB
    assert list(watched.findings.foreign.values()) == [(5720 - 2048) // 256]


async def test_an_agent_that_starts_counts_it_before_it_gives_anything(watched: Watched) -> None:
    watched.start(None, 4096)
    await watched.world.restart()
    await watched.world.agent.node.admission.reconciled.wait()
    assert watched.free() == Share(32 - 18, 100)


async def test_a_card_that_tells_nothing_keeps_what_was_found(watched: Watched) -> None:
    watched.start(None, 4096)
    await watched.rounds(2)
    before = watched.findings.found, watched.findings.foreign

    def silent(uuid: str) -> dict[int, int | None]:
        raise Refusal(Code.UNAVAILABLE, "The driver gives no figure.")

    watched.world.cards.processes = silent  # type: ignore[method-assign]
    await watched.rounds(2)
    assert (watched.findings.found, watched.findings.foreign) == before


# -- stopping


async def test_the_container_that_took_more_is_stopped_within_its_grace(watched: Watched) -> None:
    victim, taker = await watched.run({MEMORY: 16, CORES: 50}), await watched.run({MEMORY: 16, CORES: 50})
    quiet = watched.start(victim)
    watched.register(victim, quiet.pid)
    rogue = watched.start(taker, 5 * 1024)
    beside = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    watched.place(beside.pid, taker)
    await watched.rounds(2)
    assert {over.units for over in watched.world.agent.core.ledger.overbooked().values()} == {22 - 16}
    assert rogue.process.poll() is None
    watched.world.kube.refuse(503, "ServiceUnavailable", times=1000)  # nobody is asked
    watched.world.ahead += watchdog.GRACE
    await watched.rounds(1)
    await until(lambda: rogue.process.poll() == -signal.SIGKILL)
    await until(lambda: beside.poll() == -signal.SIGKILL)  # the container, not one of its programs
    beside.communicate()
    assert quiet.process.poll() is None
    await until(lambda: watched.held(taker) == 16)
    assert watched.world.agent.core.ledger.overbooked() == {}
    await watched.rounds(2)
    view = await watched.world.agent.node.slot(watched.world.slot(taker))
    assert "The container was stopped: its process " in view.note
    assert "held 5.3 GiB of card 0" in view.note
    assert "and 4 GiB were given; the card lacked 1.5 GiB" in view.note
    assert watched.world.agent.node.watched().stopped == {"over_slot": 1}
    assert watched.world.agent.core.raised == {}


async def test_the_reason_of_a_stop_is_said_on_the_pod(watched: Watched) -> None:
    await watched.run({MEMORY: 16, CORES: 50})
    taker = await watched.run({MEMORY: 16, CORES: 50})
    watched.start(taker, 5 * 1024)
    await watched.rounds(2)
    watched.world.ahead += watchdog.GRACE
    await watched.rounds(1)
    await until(lambda: any(reason == "Stopped" for _, reason, _ in watched.events))
    assert {name for name, _, _ in watched.events} == {taker.name}


async def test_who_was_shrunk_below_its_use_is_never_stopped(watched: Watched) -> None:
    shrunk = await watched.run({MEMORY: 12, CORES: 25})
    await watched.run({MEMORY: 8, CORES: 25})
    taker = await watched.run({MEMORY: 12, CORES: 25})
    program = watched.start(shrunk, 2500)
    watched.register(shrunk, program.pid, used=2500 * MIB)
    await watched.world.agent.node.resize(watched.world.slot(shrunk), models.Resize(memory="256MiB"), None)
    await until(lambda: watched.held(shrunk) == 11)
    rogue = watched.start(taker, 4096)
    await watched.rounds(2)
    assert watched.world.agent.core.ledger.overbooked() != {}
    watched.world.ahead += watchdog.GRACE
    await watched.rounds(1)
    await until(lambda: rogue.process.poll() == -signal.SIGKILL)
    await until(lambda: watched.world.agent.core.ledger.overbooked() == {})
    watched.world.ahead += watchdog.GRACE
    await watched.rounds(2)
    assert program.process.poll() is None


async def test_an_excess_that_goes_away_by_itself_stops_nobody(watched: Watched) -> None:
    await watched.run({MEMORY: 16, CORES: 50})
    taker = await watched.run({MEMORY: 16, CORES: 50})
    rogue = watched.start(taker, 5 * 1024)
    await watched.rounds(2)
    rogue.hold(1024)
    await until(lambda: watched.held(taker) == 16)
    watched.world.ahead += watchdog.GRACE
    await watched.rounds(2)
    assert rogue.process.poll() is None


async def test_an_agent_that_was_restarted_stops_whom_the_last_one_would_have(watched: Watched) -> None:
    await watched.run({MEMORY: 16, CORES: 50})
    taker = await watched.run({MEMORY: 16, CORES: 50})
    rogue = watched.start(taker, 5 * 1024)
    await watched.rounds(1)
    await watched.world.restart()
    await watched.world.agent.node.admission.reconciled.wait()
    await watched.rounds(2)
    watched.world.ahead += watchdog.GRACE
    await watched.rounds(1)
    await until(lambda: rogue.process.poll() == -signal.SIGKILL)


MAPPER = """
import mmap, os, sys
file = open(sys.argv[1], "r+b")
page = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


async def test_who_registers_in_anothers_page_is_stopped(watched: Watched) -> None:
    owner, intruder = await watched.run(QUARTER), await watched.run(QUARTER)
    command = [sys.executable, "-S", "-c", MAPPER, str(watched.usage(owner))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mapped\n"
    watched.place(process.pid, intruder)
    watched.register(owner, process.pid)
    await watched.rounds(1)
    assert process.poll() is None
    await watched.rounds(1)
    await until(lambda: process.poll() == -signal.SIGKILL)
    process.communicate()
    events = await told(watched, 2)
    assert {name for name, _, _ in events} == {intruder.name}
    assert {reason for _, reason, _ in events} == {"OthersPage", "Stopped"}
    assert f"registered in the usage page of default/{owner.name}, container main" in events[0][2]


async def test_a_twin_by_pid_and_start_time_is_no_intruder(watched: Watched) -> None:
    owner, twin = await watched.run(QUARTER), await watched.run(QUARTER)
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    watched.place(process.pid, twin)
    watched.register(owner, process.pid)  # left there by a process that has ended
    await watched.rounds(3)
    assert watched.findings.found == ()
    assert process.poll() is None
    process.kill()
    process.communicate()


# -- eviction


@pytest.mark.parametrize("evict", [False, True], ids=["as it is set at first", "when told to"])
async def test_pods_are_deleted_for_it_only_when_told_to(watched: Watched, evict: bool) -> None:
    watched.dog.evict = evict
    pod = await watched.run({})
    watched.start(pod, 1024)
    watched.start(None, 1024)
    await watched.rounds(3)

    def deleted() -> list[str]:
        return [asked.path for asked in watched.world.kube.asked if asked.method == "DELETE"]

    if evict:
        await until(deleted)
        assert any(reason == "Unmanaged" for _, reason, _ in await told(watched, 2))
    assert len(deleted()) == evict


def test_all_is_done_within_ten_seconds() -> None:
    # a round may begin just before something happens, and so may the observation that books it
    assert (watchdog.ROUNDS + 1) * watchdog.EVERY < 10
    assert loops.OBSERVE_EVERY + 2 * watchdog.EVERY + watchdog.GRACE < 10
