"""The agent: what it does to the ledger, the pages and the status of its `GPUNode`.

A step's label begins with the name of the function that does it in the code. Between any two steps the
agent may be killed; what is in `State.agent` is forgotten then, and `recover` begins anew.
"""

from __future__ import annotations

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
    Sync,
    free,
    lose,
    put,
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
    yield from sync_status(m, s)


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
    if slot.reserved:
        if not m.rules.reserved_is_not_resized:
            for new in range(1, room(m, s, pod) + 1):
                yield f"Ledger.resize(p{pod}, {new})", aim(asked, pod, Slot(new, max(new, slot.held)))
        return
    for new in range(1, m.story.units + 1):
        if new < slot.target:
            held = slot.held if m.rules.held_waits_for_use else new
            yield f"Ledger.resize(p{pod}, {new})", aim(asked, pod, Slot(new, held))
        elif new > slot.target and grow_ is None and room(m, s, pod) >= new:
            booked = asked
            if m.rules.held_before_target:
                held = max(slot.held, new) if m.rules.hold_keeps_held else new
                booked = with_slot(asked, pod, slot._replace(held=held))
            yield f"Ledger.hold(p{pod}, {new})", with_grow(booked, pod, Grow(new, new=False))


def aim(s: State, pod: int, slot: Slot) -> State:
    """Put a target in force: a grow under way is void, measurements are old, the page has to be stored."""
    s = with_grow(to_store(with_slot(s, pod, slot), pod), pod, None)
    claim = s.agent.claims[pod]
    return s if claim is None else with_claim(s, pod, claim._replace(current=False))


def grow(m: Model, s: State, pod: int) -> Steps:
    """After it was booked: read the `GPUNode`, PUT the status, only then put the target in force."""
    under_way = s.agent.grows[pod]
    if under_way is None:
        return
    if under_way.step == "booked":
        plan = built(s)
        if not m.rules.held_before_target:
            plan = put(plan, pod, max(plan[pod], under_way.wanted))
        if m.rules.grow_counts_reservations and free(m, s.api.reserved, plan) < 0:
            yield f"{_undo_name(under_way)}(p{pod}): no room beside the reservations", undo(m, s, pod)
        else:
            read = under_way._replace(step="read", fresh=True, plan=plan)
            yield f"get_gpunode for the grow of p{pod}", with_grow(s, pod, read)
    elif under_way.step == "read":
        # the 409 of one who is not `fresh` has happened in `wrote_node`
        said = under_way._replace(step="said", fresh=False, plan=())
        written = wrote_status(m, s, under_way.plan)
        yield f"put_status for the grow of p{pod}", with_grow(written, pod, said)
        if s.left.losses:
            lost = undo(m, written, pod)
            lost = lost._replace(left=s.left._replace(losses=s.left.losses - 1))
            yield f"put_status for the grow of p{pod}; its answer is lost: {_undo_name(under_way)}", lost
            late = Late("put_status", pod, under_way.fresh, under_way.plan)
            yield (
                f"put_status for the grow of p{pod} is given up: {_undo_name(under_way)}",
                undo(m, lose(m, s, late), pod),
            )
    if under_way.step == "said" and not m.rules.commit_before_page:
        stored = with_page(s, pod, Page(under_way.wanted))
        yield (
            f"Core._store(p{pod}, {under_way.wanted})",
            with_grow(stored, pod, under_way._replace(step="stored")),
        )
    elif under_way.step in ("said", "stored") or not m.rules.put_before_commit:
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
    """Write the status."""
    return wrote_node(m, s._replace(api=s.api._replace(status=plan)))


def sync_status(m: Model, s: State) -> Steps:
    """Bring the status up to what the ledger has; nothing is granted by this."""
    sync = s.agent.sync
    if sync is None:
        if m.rules.sync_compares and built(s) != s.api.status:
            after = m.rules.status_after_get
            begun = Sync("read", built(s), fresh=True) if after else Sync("built", built(s))
            yield ("get_gpunode" if after else "put_status begins before the read"), _with_sync(s, begun)
    elif sync.step == "built":
        yield "get_gpunode, the status is built already", _with_sync(s, Sync("read", sync.plan, fresh=True))
    else:
        done = _with_sync(s, None)
        yield "put_status", wrote_status(m, done, sync.plan)
        if s.left.losses:
            yield "put_status is given up", lose(m, done, Late("put_status", 0, sync.fresh, sync.plan))


def _with_sync(s: State, sync: Sync | None) -> State:
    return s._replace(agent=s.agent._replace(sync=sync))


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
