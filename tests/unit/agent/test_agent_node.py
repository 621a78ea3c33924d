"""One node: slots made, resized, drained, released and recovered, on played cards."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from gaia_plugin.agent import loops
from gaia_plugin.agent.core import BEAT_EVERY
from gaia_plugin.api.models import NewSlot, Owner, Resize
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB, MIB


def wish(owner: str = "alice", memory: object = "4GiB", **more: Any) -> NewSlot:
    return NewSlot(owner=owner, memory=memory, **more)


async def card_of(machine: Any, slot: str) -> str:
    return str((await machine.node.slot(slot)).cards[0].uuid)


async def test_a_slot_has_a_directory_a_page_a_socket_and_an_environment(machine: Any) -> None:
    made = await machine.node.make(wish(cores=25))
    directory = Path(made.directory)
    assert {entry.name for entry in directory.iterdir()} == {"limits", "usage", "agent.sock", "lib"}
    assert made.slot.granted.memory == 4 * GIB
    assert made.slot.granted.cores == 25
    assert made.slot.state == "applied"
    assert made.environment["LD_LIBRARY_PATH"] == str(directory / "lib")
    assert made.environment["GAIA_SLOT_SOCKET"] == str(directory / "agent.sock")
    assert made.environment["CUDA_VISIBLE_DEVICES"] == made.slot.cards[0].uuid
    assert not any("GIB" in value.upper() for value in made.environment.values())
    assert machine.limit("alice", made.slot.cards[0].uuid) == 16


async def test_a_grow_is_in_force_when_it_is_answered(machine: Any) -> None:
    await machine.node.make(wish())
    resized = await machine.node.resize("alice", Resize(memory="8GiB", cores=50), None)
    assert resized.state == "applied"
    assert "8 GiB" in resized.message
    assert machine.limit("alice", await card_of(machine, "alice")) == 32


async def test_a_refused_grow_names_what_would_work_and_it_does(machine: Any) -> None:
    first = await machine.node.make(wish("alice", "20GiB", cores=10))
    second = await machine.node.make(wish("bob", "20GiB", cores=10))
    third = await machine.node.make(wish("carol", "1GiB", cores=1))
    crowded = third.slot.cards[0].uuid
    victim = next(made.slot.slot for made in (first, second) if made.slot.cards[0].uuid == crowded)
    with pytest.raises(Refusal) as refused:
        await machine.node.resize(victim, Resize(memory="23GiB"), None)
    assert refused.value.code is Code.CARD_FULL
    assert refused.value.best_memory == 22 * GIB + 512 * MIB
    assert (await machine.node.slot(victim)).granted.memory == 20 * GIB
    again = await machine.node.resize(victim, Resize(memory=refused.value.best_memory), None)
    assert again.state == "applied"


async def test_shrinking_what_is_not_used_goes_back_at_once(machine: Any) -> None:
    await machine.node.make(wish(memory="8GiB"))
    resized = await machine.node.resize("alice", Resize(memory="2GiB"), None)
    assert resized.state == "applied"
    assert resized.slot.held.memory == 2 * GIB


async def test_shrinking_below_use_drains_until_the_program_frees(
    machine: Any, program: subprocess.Popen[bytes]
) -> None:
    await machine.node.make(wish(process=program.pid))
    card = await card_of(machine, "alice")
    machine.usage("alice").claim(0, program.pid, used=3 * GIB, context=1)
    machine.gpus.held[card][program.pid] = 3 * GIB + 300 * MIB
    resized = await machine.node.resize("alice", Resize(memory="2GiB"), None)
    assert resized.state == "draining"
    assert resized.slot.used == 3 * GIB + 300 * MIB
    assert "free it" in resized.message
    assert "1.3 GiB more" in resized.message
    assert resized.slot.held.memory == 3 * GIB + 512 * MIB  # rounded up to whole units
    machine.usage("alice").claim(0, program.pid, used=1 * GIB, context=1)
    machine.gpus.held[card][program.pid] = 1 * GIB + 300 * MIB
    await machine.node.drain("alice")
    slot = await machine.node.slot("alice")
    assert slot.state == "applied"
    assert slot.held.memory == 2 * GIB


async def test_what_is_announced_is_not_given_away(machine: Any, program: subprocess.Popen[bytes]) -> None:
    await machine.node.make(wish(process=program.pid))
    machine.usage("alice").claim(0, program.pid, pending=3 * GIB)
    resized = await machine.node.resize("alice", Resize(memory="1GiB"), None)
    assert resized.state == "draining"
    assert resized.slot.held.memory == 3 * GIB
    machine.usage("alice").claim(0, program.pid, pending=0)
    await machine.node.drain("alice")
    assert (await machine.node.slot("alice")).held.memory == 1 * GIB


async def test_a_driver_without_an_answer_gives_nothing_away(
    machine: Any, program: subprocess.Popen[bytes]
) -> None:
    await machine.node.make(wish(process=program.pid))
    card = await card_of(machine, "alice")
    machine.usage("alice").claim(0, program.pid, used=3 * GIB, context=1)
    machine.gpus.lost.add(card)
    resized = await machine.node.resize("alice", Resize(memory="1GiB"), None)
    assert resized.state == "draining"
    assert resized.slot.held.memory == 4 * GIB


async def test_the_end_of_the_process_releases_the_slot(
    machine: Any, program: subprocess.Popen[bytes], until: Any
) -> None:
    made = await machine.node.make(wish(process=program.pid))
    program.kill()
    program.wait()
    await until(lambda: not machine.node.core.ledger.slots())
    await until(lambda: not Path(made.directory).exists())
    assert all(card.free == card.total for card in await machine.node.cards())


async def test_a_released_slot_stays_booked_while_a_child_still_holds_memory(
    machine: Any, program: subprocess.Popen[bytes]
) -> None:
    await machine.node.make(wish())
    card = await card_of(machine, "alice")
    machine.usage("alice").claim(0, program.pid, used=GIB, context=1)
    machine.gpus.held[card][program.pid] = GIB + 300 * MIB
    gone = await machine.node.release("alice")
    assert gone.state == "releasing"
    assert gone.granted.memory == 0
    assert gone.held.memory == GIB + 512 * MIB
    assert machine.limit("alice", card) == 0
    with pytest.raises(Refusal) as refused:
        await machine.node.resize("alice", Resize(memory="2GiB"), None)
    assert refused.value.code is Code.NO_SUCH_SLOT
    machine.gpus.held[card].clear()
    program.kill()
    program.wait()
    await machine.node.drain("alice")
    with pytest.raises(Refusal):
        await machine.node.slot("alice")


async def test_a_restarted_agent_keeps_slots_and_puts_their_pages_right(
    machine: Any, program: subprocess.Popen[bytes], restart: Any
) -> None:
    await machine.node.make(wish(process=program.pid))
    card = await card_of(machine, "alice")
    # what a crash between ledger and page leaves behind
    record = machine.node.core.ledger.slot("alice")
    part = record.slices[0]
    machine.node.core.ledger.resize("alice", {card: type(part.target)(4, part.target.cores)})
    assert machine.limit("alice", card) == 16
    await restart()
    assert machine.limit("alice", card) == 4
    assert (await machine.node.slot("alice")).granted.memory == GIB


async def test_a_restarted_agent_releases_slots_whose_process_is_gone(
    machine: Any, program: subprocess.Popen[bytes], restart: Any, until: Any
) -> None:
    await machine.node.make(wish(process=program.pid))
    machine.node._unwatch("alice")
    program.kill()
    program.wait()
    await restart()
    await until(lambda: not machine.node.core.ledger.slots())


async def test_a_directory_that_no_slot_has_is_removed_at_the_start(machine: Any, restart: Any) -> None:
    left = machine.state / "slots" / "ghost"
    left.mkdir(parents=True)
    await restart()
    assert not left.exists()


async def test_a_damaged_limits_page_is_made_anew(machine: Any, restart: Any) -> None:
    made = await machine.node.make(wish())
    limits = Path(made.directory) / "limits"
    for content in (b"", b"noise" * 1000, bytes(8192 + 192 * 1024)):
        limits.write_bytes(content)
        await machine.node.resize("alice", Resize(memory="5GiB"), None)
        await machine.node.resize("alice", Resize(memory="4GiB"), None)
        assert machine.limit("alice", made.slot.cards[0].uuid) == 16
    limits.write_bytes(b"")
    await restart()
    assert machine.limit("alice", made.slot.cards[0].uuid) == 16


async def test_a_noisy_usage_page_ends_nothing(machine: Any) -> None:
    made = await machine.node.make(wish())
    usage = Path(made.directory) / "usage"
    size = usage.stat().st_size
    for content in (b"", b"\xff" * size, bytes(range(256)) * (size // 256), b"\0" * size):
        usage.write_bytes(content)
        assert (await machine.node.slot("alice")).granted.memory == 4 * GIB
        await loops.observe(machine.node)
    assert (await machine.node.resize("alice", Resize(memory="5GiB"), None)).state == "applied"


async def test_more_than_held_is_booked_at_once(machine: Any, program: subprocess.Popen[bytes]) -> None:
    await machine.node.make(wish(memory="1GiB", process=program.pid))
    card = await card_of(machine, "alice")
    machine.usage("alice").claim(0, program.pid, used=0)
    machine.gpus.held[card][program.pid] = 6 * GIB
    await loops.observe(machine.node)
    slot = await machine.node.slot("alice")
    assert slot.held.memory == 6 * GIB
    assert slot.granted.memory == 1 * GIB
    assert slot.state == "draining"


async def test_overheads_reach_the_page_and_the_view(machine: Any, program: subprocess.Popen[bytes]) -> None:
    await machine.node.make(wish(process=program.pid))
    card = await card_of(machine, "alice")
    machine.usage("alice").claim(0, program.pid, used=GIB, context=1)
    machine.gpus.held[card][program.pid] = GIB + 420 * MIB
    assert (await machine.node.slot("alice")).used == GIB + 300 * MIB
    for _ in range(4):
        await loops.observe(machine.node)
    slot = await machine.node.slot("alice")
    assert slot.used == GIB + 420 * MIB
    assert [process.pid for process in slot.processes] == [program.pid]


async def test_a_slot_that_nobody_claims_goes_back(
    machine: Any, program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.node.make(wish("alice"))
    await machine.node.make(wish("bob"))
    await machine.node.own("bob", Owner(process=program.pid))
    await loops.observe(machine.node)
    assert len(machine.node.core.ledger.slots()) == 2
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    await loops.observe(machine.node)
    assert [record.slot for record in machine.node.core.ledger.slots()] == ["bob"]


async def test_fit_books_nothing_and_says_why_not(machine: Any) -> None:
    await machine.node.make(wish("alice", "20GiB"))
    await machine.node.make(wish("bob", "20GiB"))
    fits = await machine.node.fit([wish("x", "3GiB"), wish("x", "8GiB"), wish("x", "8"), wish("x", "30GiB")])
    assert [fit.fits for fit in fits] == [True, False, False, False]
    assert fits[1].best is not None
    assert fits[1].best.memory == 3 * GIB + 512 * MIB
    assert all(fit.reason for fit in fits[1:])
    assert len(machine.node.core.ledger.slots()) == 2


BAD_WISHES = [
    (wish(memory=0), Code.INVALID_AMOUNT),
    (wish(memory="8\n"), Code.INVALID_AMOUNT),
    (wish(memory=[1]), Code.INVALID_AMOUNT),
    (wish(memory="500GiB"), Code.INVALID_AMOUNT),
    (wish(memory="8GiB", max_memory="4GiB"), Code.OVER_MAXIMUM),
    (wish(memory="8GiB", cores=50, max_cores=25), Code.OVER_MAXIMUM),
    (wish(memory=None, cores=50), Code.INVALID_AMOUNT),
    (wish(memory=None), Code.INVALID_AMOUNT),
    (wish(count=0), Code.INVALID_AMOUNT),
    (wish(count=99), Code.INVALID_AMOUNT),
    (wish(models=("Nothing",)), Code.NO_SUCH_CARD),
    (wish(owner=""), Code.BAD_REQUEST),
    (wish(owner="x" * 200), Code.BAD_REQUEST),
    (wish(process=0), Code.BAD_REQUEST),
    (wish(process=-5), Code.BAD_REQUEST),
    (wish(process=2**22 + 12345), Code.BAD_REQUEST),
]


@pytest.mark.parametrize(("asked", "code"), BAD_WISHES)
async def test_a_bad_wish_makes_nothing(machine: Any, asked: NewSlot, code: Code) -> None:
    with pytest.raises(Refusal) as refused:
        await machine.node.make(asked)
    assert refused.value.code is code
    assert refused.value.sentence.endswith(".")
    assert machine.node.core.ledger.slots() == []
    assert machine.node.core.directories.slots() == []


BAD_RESIZES = [
    (Resize(), Code.BAD_REQUEST),
    (Resize(memory="24GiB"), Code.OVER_MAXIMUM),
    (Resize(cores=101), Code.INVALID_AMOUNT),
    (Resize(memory="4GiB", cards={}), Code.BAD_REQUEST),
    (Resize(cards={}), Code.BAD_REQUEST),
    (Resize(cards={"GPU-no": {"memory": "4GiB"}}), Code.NO_SUCH_CARD),
    (Resize(cards={"GPU-00000000-0000-0000-0000-000000000001": {}}), None),
    (Resize(cards={"GPU-00000000-0000-0000-0000-000000000001": {"limit": 1}}), None),
    (Resize(cards={"GPU-00000000-0000-0000-0000-000000000001": {"memory": -1}}), None),
]


@pytest.mark.parametrize(("asked", "code"), BAD_RESIZES)
async def test_a_bad_resize_changes_nothing(machine: Any, asked: Resize, code: Code | None) -> None:
    await machine.node.make(wish())
    before = await machine.node.slot("alice")
    with pytest.raises(Refusal) as refused:
        await machine.node.resize("alice", asked, None)
    assert code is None or refused.value.code is code
    assert await machine.node.slot("alice") == before


async def test_a_stale_generation_is_refused(machine: Any) -> None:
    made = await machine.node.make(wish())
    await machine.node.resize("alice", Resize(memory="5GiB"), made.slot.generation)
    with pytest.raises(Refusal) as refused:
        await machine.node.resize("alice", Resize(memory="6GiB"), made.slot.generation)
    assert refused.value.code is Code.STALE


async def test_totals_are_split_over_cards_and_one_card_can_be_set(machine: Any) -> None:
    made = await machine.node.make(wish(count=2, memory="4GiB", cores=20))
    assert [card.granted.memory for card in made.slot.cards] == [2 * GIB, 2 * GIB]
    with pytest.raises(Refusal) as refused:
        await machine.node.resize("alice", Resize(memory="4.25GiB"), None)
    assert refused.value.code is Code.INVALID_AMOUNT
    uuid = made.slot.cards[1].uuid
    resized = await machine.node.resize("alice", Resize(cards={uuid: {"memory": "3GiB"}}), None)
    assert [card.granted.memory for card in resized.slot.cards] == [2 * GIB, 3 * GIB]


async def test_a_directory_that_cannot_be_made_grants_nothing(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine.node.core.directories, "create", full)
    with pytest.raises(Refusal) as refused:
        await machine.node.make(wish())
    assert refused.value.code is Code.UNAVAILABLE
    assert machine.node.core.ledger.slots() == []


async def test_an_idle_agent_ends_and_one_with_a_slot_does_not(
    machine: Any, program: subprocess.Popen[bytes]
) -> None:
    import asyncio

    await loops.until_idle(machine.node, 0.05)
    await machine.node.make(wish(process=program.pid))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loops.until_idle(machine.node, 0.05), 0.5)


async def test_a_slot_made_again_at_once_is_served_and_not_released_for_the_old_one(
    machine: Any, program: subprocess.Popen[bytes], until: Any
) -> None:
    first = await machine.node.make(wish())
    old = machine.node.core.ledger.slot("alice")
    await machine.node.release("alice")
    second = await machine.node.make(wish(process=program.pid))
    assert first.directory == second.directory
    await machine.node.release_quietly(old)
    await until(lambda: not machine.node._tasks)
    assert (await machine.node.slot("alice")).state == "applied"
    assert (Path(second.directory) / "agent.sock").exists()


async def test_a_driver_that_hangs_delays_no_answer_for_long(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from gaia_plugin.agent import node as module

    await machine.node.make(wish())
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    go_on = threading.Event()
    monkeypatch.setattr(machine.gpus, "processes", lambda _: go_on.wait(30) and {})
    monkeypatch.setattr(machine.gpus, "memory_used", lambda _: go_on.wait(30) and 0)
    try:
        resized = await machine.node.resize("alice", Resize(memory="2GiB"), None)
        assert resized.state == "draining"
        assert resized.slot.held.memory == 4 * GIB
        assert len(await machine.node.cards()) == 2
    finally:
        go_on.set()


async def test_a_process_that_holds_memory_and_is_not_listed_counts_until_it_ends(
    machine: Any, program: subprocess.Popen[bytes]
) -> None:
    await machine.node.make(wish())
    machine.usage("alice").claim(0, program.pid, used=3 * GIB, context=1)
    assert (await machine.node.resize("alice", Resize(memory="1GiB"), None)).slot.held.memory == 4 * GIB
    program.kill()
    program.wait()
    await machine.node.drain("alice")
    assert (await machine.node.slot("alice")).held.memory == GIB


async def test_compute_is_told_as_granted_limit_and_use(
    machine: Any, program: subprocess.Popen[bytes]
) -> None:
    made = await machine.node.make(wish(cores=25, compute="elastic", process=program.pid, max_cores=60))
    time_ = made.slot.time
    assert (time_.guaranteed, time_.limit, time_.ceiling, time_.used) == (250, 250, 600, 0)
    assert [card.uuid for card in time_.cards] == [made.slot.cards[0].uuid]
    assert "at least 25 %" in made.slot.message
    await loops.share(machine.node)
    resized = await machine.node.resize("alice", Resize(cores=40), None)
    assert resized.slot.time.guaranteed == 400
    assert resized.slot.time.limit >= 400
    other = await machine.node.make(wish("bob", cores=10))
    assert (other.slot.time.limit, other.slot.time.ceiling) == (100, 100)


async def test_cores_are_in_the_page_when_a_resize_is_answered(machine: Any) -> None:
    from gaia_plugin.slots.pages import LimitsPage, layout

    made = await machine.node.make(wish(cores=50, count=2))
    numbers = layout()
    for total, each in ((50, 250_000), (10, 50_000), (200, 1_000_000)):
        await machine.node.resize("alice", Resize(cores=total), None)
        with LimitsPage(Path(made.directory) / "limits") as page:
            for index in range(2):
                base = numbers["limits.card"] + index * numbers["limits.card.bytes"]
                for word in ("rate_ppm", "guarantee_ppm", "ceiling_ppm"):
                    assert page.load(base + numbers[f"limits.card.{word}"]) == each


async def test_sharing_leaves_a_sign_of_life_and_repairs_a_page(machine: Any) -> None:
    from gaia_plugin.slots.pages import LimitsPage, layout

    made = await machine.node.make(wish(compute="elastic"))
    limits = Path(made.directory) / "limits"
    at = layout()["limits.heartbeat_ns"]
    core, now = machine.node.core, time.monotonic()
    core._clock = lambda: now
    with LimitsPage(limits) as page:
        before = page.load(at)
        await loops.share(machine.node)
        assert page.load(at) > before
    limits.write_bytes(b"")
    now += BEAT_EVERY
    await loops.share(machine.node)
    assert machine.limit("alice", made.slot.cards[0].uuid) == 16


async def test_a_removed_slot_is_forgotten(machine: Any) -> None:
    await machine.node.make(wish(compute="elastic"))
    await loops.share(machine.node)
    assert machine.node.core.compute._states
    await machine.node.release("alice")
    await loops.share(machine.node)
    assert not machine.node.core.compute._states


@pytest.mark.parametrize("cores", [0, -5, 101, 300, "0", "25.5", True, 10**30])
async def test_compute_that_no_card_has_is_refused_in_words(machine: Any, cores: object) -> None:
    with pytest.raises(Refusal) as refused:
        await machine.node.make(wish(cores=cores))
    assert refused.value.code is Code.INVALID_AMOUNT
    await machine.node.make(wish(cores=25))
    with pytest.raises(Refusal) as refused:
        await machine.node.resize("alice", Resize(cores=cores), None)
    assert refused.value.code in (Code.INVALID_AMOUNT, Code.OVER_MAXIMUM)
    assert (await machine.node.slot("alice")).granted.cores == 25


async def test_drains_that_meet_say_once_that_a_slot_is_gone(machine: Any) -> None:
    await machine.node.make(wish())
    with structlog.testing.capture_logs() as said:
        await asyncio.gather(machine.node.release("alice"), *(machine.node.drain("alice") for _ in range(4)))
    events = [each["event"] for each in said]
    assert events.count("removed") == 1
    assert "not removed" not in events
    assert machine.node.core.ledger.slots() == []
