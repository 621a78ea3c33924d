"""The agent: what it does to the ledger, the pages and the status of its `GPUNode`.

A step's label begins with the name of the function that does it in the code. Between any two steps the
agent may be killed; what is in `State.agent` is forgotten then, and `recover` begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from tests.model.measure import held_steps
from tests.model.state import (
    NO_SLOT,
    Container,
    Grow,
    Late,
    Model,
    Page,
    Slot,
    State,
    Steps,
    Write,
    free,
    lose,
    to_store,
    with_claim,
    with_container,
    with_grow,
    with_page,
    with_phase,
    with_slot,
    wrote_node,
)


def agent_steps(m: Model, s: State) -> Steps:
    """Return what the agent may do next."""
    if not s.agent.up:
        yield "PodCore.recover", recover(m, s)
        return
    for pod in range(len(s.node.slots)):
        yield from prestart(m, s, pod)
        yield from resize(m, s, pod)
        yield from grow(m, s, pod)
        yield from store(m, s, pod)
        yield from release(m, s, pod)
        yield from held_steps(m, s, pod)
    yield from write_status(m, s)


# -- a container starts


def prestart(m: Model, s: State, pod: int) -> Steps:
    """PreStart: a slot is a grow from nothing; one that exists only needs its page (and its names)."""
    container, slot = s.node.containers[pod], s.node.slots[pod]
    if container.stage != "admitted":
        return
    for owner in [pod] if m.rules.uid_decides else [pod, *_predecessor(m, pod)]:
        there = s.node.slots[owner]
        if there is not None and there.target and not there.releasing and not s.agent.stores[owner]:
            given = Container("given", owner)
            yield (
                f"Admission.prestart(p{pod}) answers with the slot of p{owner}",
                with_container(s, pod, given),
            )
    if s.agent.seen[pod] != "bound" or s.agent.grows[pod] is not None:
        return
    if slot is not None and slot.reserved:
        yield f"Ledger.take_back(p{pod})", with_slot(s, pod, None)
    elif slot is None:
        want = m.story.wants[pod]
        if room(m, s, pod) >= want:
            booked = with_slot(s, pod, Slot(0, want)) if m.rules.held_before_target else s
            yield f"Ledger.reserve(p{pod}, {want})", with_grow(booked, pod, Grow(want, new=True))
        if s.left.evictions:
            yield f"Server.evict(p{pod})", evict(m, s, pod)


def _predecessor(m: Model, pod: int) -> list[int]:
    """Return whose name the pod has taken."""
    return [m.story.heir_of[0]] if m.story.heir_of is not None and m.story.heir_of[1] == pod else []


def evict(m: Model, s: State, pod: int) -> State:
    """Delete a pod that no card takes."""
    s = s._replace(left=s.left._replace(evictions=s.left.evictions - 1))
    if s.api.pods[pod] == "bound":
        return with_phase(m, s, pod, "gone")
    if m.rules.delete_carries_uid or m.story.heir_of is None or m.story.heir_of[0] != pod:
        return s
    heir = m.story.heir_of[1]
    return with_phase(m, s, heir, "gone")._replace(harm=f"p{heir} was deleted in the place of p{pod}")


def room(m: Model, s: State, pod: int) -> int:
    """Return how much this slot may hold by the ledger."""
    others = (slot for each, slot in enumerate(s.node.slots) if each != pod and slot is not None)
    if m.rules.capacity_counts_held:
        return m.story.units - sum(slot.held for slot in others)
    return m.story.units - sum(slot.target for slot in others)


# -- a slot changes its size


def resize(m: Model, s: State, pod: int) -> Steps:
    """A user asks for another size: larger begins a grow, smaller is in force at once."""
    slot, grow_ = s.node.slots[pod], s.agent.grows[pod]
    if pod not in m.story.resizable or not s.left.resizes or slot is None or slot.releasing:
        return
    asked = s._replace(left=s.left._replace(resizes=s.left.resizes - 1))
    void = grow_ is not None and grow_.step == "void"
    if slot.reserved:
        if not m.rules.reserved_is_not_resized:
            for new in range(1, room(m, s, pod) + 1):
                yield f"Ledger.resize(p{pod}, {new})", aim(asked, pod, Slot(new, max(new, slot.held)))
        return
    for new in range(1, m.story.units + 1):
        if new < slot.target:
            held = slot.held if m.rules.held_waits_for_use else new
            smaller = aim(asked, pod, Slot(new, held))
            if grow_ is not None and not m.rules.commits_ones_own:
                smaller = with_grow(smaller, pod, Grow(0, new=False, step="void"))
            yield f"Ledger.resize(p{pod}, {new})", smaller
        elif new > slot.target and (grow_ is None or void) and room(m, s, pod) >= new:
            booked = asked
            if m.rules.held_before_target:
                held = max(slot.held, new) if m.rules.hold_keeps_held else new
                booked = with_slot(asked, pod, slot._replace(held=held))
            yield (
                f"Ledger.hold(p{pod}, {new})",
                with_grow(booked, pod, Grow(new, False, slot.held, overtook=void)),
            )


def aim(s: State, pod: int, slot: Slot) -> State:
    """Put a target in force: a grow under way is void, measurements are old, the page has to be stored."""
    s = with_grow(to_store(with_slot(s, pod, slot), pod), pod, None)
    claim = s.agent.claims[pod]
    return s if claim is None else with_claim(s, pod, claim._replace(current=False))


def grow(m: Model, s: State, pod: int) -> Steps:
    """After it was booked: wait until the `GPUNode` says so, only then put the target in force."""
    under_way = s.agent.grows[pod]
    if under_way is None or under_way.step == "void":
        return
    # the author of one that was overtaken is told, and puts in force what it finds
    said = under_way.step in ("said", "stored") or under_way.overtook
    if under_way.step in ("booked", "read"):
        # the write goes on without it, and may be done after what it tells of was given up
        yield f"{_undo_name(under_way)}(p{pod}): nobody is told in time", undo(m, s, pod)
    if under_way.step == "said" and not m.rules.commit_before_page:
        stored = with_page(s, pod, Page(under_way.wanted))
        yield (
            f"Core._store(p{pod}, {under_way.wanted})",
            with_grow(stored, pod, under_way._replace(step="stored")),
        )
    elif said or not m.rules.put_before_commit:
        slot = s.node.slots[pod]
        held = 0 if slot is None else slot.held
        after = Slot(under_way.wanted, max(held, under_way.wanted))
        yield f"Ledger.commit(p{pod}, {under_way.wanted})", aim(s, pod, after)
        if s.left.losses:
            # what was booked stays; a start is taken back by the next PreStart, if there is one
            left = s.left._replace(losses=s.left.losses - 1)
            yield (
                f"Ledger.commit(p{pod}) fails: the disk is full",
                with_grow(s, pod, None)._replace(left=left),
            )


def _undo_name(under_way: Grow) -> str:
    return "Ledger.take_back" if under_way.new else "Ledger.undo"


def undo(m: Model, s: State, pod: int) -> State:
    """Give a grow up: what is in force never moved; what was booked falls by the rule of a shrink."""
    under_way, slot = s.agent.grows[pod], s.node.slots[pod]
    s = with_grow(s, pod, None)
    if under_way is not None and under_way.new:
        return with_slot(s, pod, None)
    if slot is not None and not m.rules.undo_by_shrink_rule:
        return with_slot(s, pod, slot._replace(held=slot.target))
    return s


def store(m: Model, s: State, pod: int) -> Steps:
    """Put page := target."""
    slot, page = s.node.slots[pod], s.node.pages[pod]
    if s.agent.stores[pod] and slot is not None:
        new = Page(page.most if page.buffered is None else page.buffered, slot.target)
        if not m.story.late_stores:
            new = Page(slot.target)
        yield f"Core._store(p{pod}, {slot.target})", with_page(to_store(s, pod, wanted=False), pod, new)


# -- a slot ends


def release(m: Model, s: State, pod: int) -> Steps:
    """Shrink a slot to nothing, because its pod is gone; strike it out when it holds nothing."""
    slot, container = s.node.slots[pod], s.node.containers[pod]
    if slot is None:
        return
    if slot.releasing:
        if slot.held == 0 or not m.rules.remove_at_zero:
            gone = with_claim(to_store(with_slot(s, pod, None), pod, wanted=False), pod, None)
            yield f"Ledger.remove(p{pod})", gone
    elif slot.reserved:
        if m.rules.sweep_takes_back and s.agent.grows[pod] is None and s.agent.seen[pod] == "gone":
            yield f"Ledger.take_back(p{pod})", with_slot(s, pod, None)
    else:
        ended = s.agent.seen[pod] == "gone" or (
            not m.rules.release_asks_live and s.agent.seen[pod] == "unknown"
        )
        if ended or (not m.rules.only_the_end_releases and not container.takes and not container.alloc):
            released = aim(s, pod, Slot(0, slot.held, releasing=True))
            yield (
                f"Ledger.release(p{pod})",
                released if m.rules.release_writes_page else to_store(released, pod, wanted=False),
            )


# -- the status


def built(s: State) -> tuple[int, ...]:
    """Return the status that the ledger has now."""
    return tuple(NO_SLOT if slot is None else slot.held for slot in s.node.slots)


def wrote_status(m: Model, s: State, plan: tuple[int, ...]) -> State:
    """Write the status; one that says what is there already makes no new version, if nothing in it is new."""
    after = s._replace(api=s.api._replace(status=plan, blank=False))
    return after if after.api == s.api and not m.rules.status_is_new else wrote_node(m, after)


def write_status(m: Model, s: State) -> Steps:
    """Read the `GPUNode`, refuse whom the reservations leave no room, build the status, PUT it.

    One write at a time tells of all grows that wait by then; of none, it brings the status up to date.
    """
    write = s.agent.write
    if write is None:
        booked = [pod for pod, grow in enumerate(s.agent.grows) if grow is not None and grow.step == "booked"]
        for batch in (each for size in range(1, len(booked) + 1) for each in combinations(booked, size)):
            yield from plan(m, s, batch)
        if m.rules.sync_compares and (s.api.blank or built(s) != s.api.status):
            yield from plan(m, s, ())
    elif write.step == "built":
        read = Write("read", write.plan, fresh=True)
        yield "get_gpunode, the status is built already", _with_write(s, read)
    else:
        yield f"put_status{_of(tells_of(s))}", wrote_status(m, told(m, s), write.plan)
        if s.left.losses:
            undone = _with_write(s, None)
            for pod in tells_of(s):
                undone = undo(m, undone, pod)
            lost = wrote_status(m, undone, write.plan)
            lost = lost._replace(left=s.left._replace(losses=s.left.losses - 1))
            yield f"put_status{_of(tells_of(s))}; its answer is lost", lost
            late = Late("put_status", 0, write.fresh, write.plan)
            yield f"put_status{_of(tells_of(s))} is given up", lose(m, undone, late)


def plan(m: Model, s: State, batch: tuple[int, ...], refused: tuple[int, ...] = ()) -> Steps:
    """Take up those of a batch for whom there is room beside the reservations; the others are refused.

    Which of them give way is open. What they have booked stays in the status until it falls.
    """
    status = list(built(s))
    for pod in batch:
        if not m.rules.held_before_target:
            status[pod] = max(status[pod], _wanted(s, pod))
    names = f"{_of(batch)}{''.join(f', no room for p{pod}' for pod in refused)}"
    if m.rules.grow_counts_reservations and free(m, s.api.reserved, _as_refused(s, status, refused)) < 0:
        losers = [pod for pod in batch if m.rules.vain_counts or _takes(s, pod)]
        for pod in losers:
            rest = tuple(each for each in batch if each != pod)
            yield from plan(m, s, rest, (*refused, pod))
        if losers:
            return
    after = s
    for pod in refused:
        after = undo(m, after, pod)
    if refused and not batch:
        yield f"get_gpunode{names}", after
        return
    for pod in batch:
        under_way = after.agent.grows[pod]
        if under_way is not None:
            after = with_grow(after, pod, under_way._replace(step="read"))
    if m.rules.status_after_get:
        yield f"get_gpunode{names}", _with_write(after, Write("read", tuple(status), fresh=True))
    else:
        yield f"put_status begins before the read{names}", _with_write(after, Write("built", tuple(status)))


def _wanted(s: State, pod: int) -> int:
    under_way = s.agent.grows[pod]
    return 0 if under_way is None else under_way.wanted


def _takes(s: State, pod: int) -> bool:
    """Tell whether a grow has booked more than its slot held before."""
    under_way = s.agent.grows[pod]
    return under_way is not None and under_way.wanted > under_way.before


def _as_refused(s: State, status: list[int], refused: tuple[int, ...]) -> tuple[int, ...]:
    """Return the status as it is when what was refused has fallen."""
    before = [NO_SLOT if grow is None else grow.before for grow in s.agent.grows]
    return tuple(before[pod] if pod in refused else held for pod, held in enumerate(status))


def tells_of(s: State) -> list[int]:
    """Return of whose grows the write under way tells."""
    return [pod for pod, grow in enumerate(s.agent.grows) if grow is not None and grow.step == "read"]


def told(m: Model, s: State) -> State:
    """Let those know of whom the write tells, which is done."""
    steps = ("read",) if m.rules.told_was_built else ("read", "booked")
    s = _with_write(s, None)
    for pod, under_way in enumerate(s.agent.grows):
        if under_way is not None and under_way.step in steps:
            s = with_grow(s, pod, under_way._replace(step="said"))
    return s


def _of(pods: Iterable[int]) -> str:
    names = [f"p{pod}" for pod in pods]
    return f" for {' and '.join(names)}" if names else ""


def _with_write(s: State, write: Write | None) -> State:
    return s._replace(agent=s.agent._replace(write=write))


# -- after a start


def recover(m: Model, s: State) -> State:
    """Strike out what was never in force, and put page := target everywhere."""
    seen = s.agent.seen if m.story.stale_views else s.api.pods
    s = s._replace(agent=s.agent._replace(up=True, seen=seen))
    for pod, slot in enumerate(s.node.slots):
        if slot is None:
            continue
        if slot.reserved:
            s = with_slot(s, pod, None) if m.rules.recover_takes_back else s
        elif m.rules.recover_stores_target:
            s = with_page(s, pod, Page(slot.target))
    return s
