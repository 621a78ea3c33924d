"""How what a slot holds falls, and how it rises when a program took more than it was given.

A process that announced an allocation, read the old limit and was stopped before it called the driver may
go on at any time. What it announced is either still in the announced sum or already in a reading that
began after that sum; so, and only in this order: the store, a fence, the sum, two readings, `settle`.
"""

from __future__ import annotations

from tests.model.state import (
    Claim,
    Container,
    Model,
    Page,
    State,
    Steps,
    with_claim,
    with_container,
    with_page,
    with_slot,
)


def held_steps(m: Model, s: State, pod: int) -> Steps:
    """Return the steps of giving back what one slot holds beyond its target."""
    yield from claim(m, s, pod)
    yield from reading(m, s, pod)
    yield from settle(m, s, pod)
    yield from observe(m, s, pod)
    yield from stop_overbooker(m, s, pod)


def users(s: State, pod: int) -> list[Container]:
    """Return the containers whose processes have the slot's pages."""
    return [each for each in s.node.containers if each.page_of == pod]


def announced(m: Model, s: State, pod: int) -> int:
    """Return the sum of what the slot's processes announce."""
    if not m.rules.pending_counts:
        return 0
    dead = sum(each.alloc == "dead" for each in users(s, pod)) if not m.rules.dead_do_not_count else 0
    return sum(each.announced for each in users(s, pod)) + dead


def driver_says(m: Model, s: State, pod: int) -> int:
    """Return what the driver shows of the slot's processes."""
    if not m.rules.driver_is_truth and pod == m.story.liar:
        return 0  # what the liar wrote into its usage page
    slot = s.node.slots[pod]
    if not m.story.figures and slot is not None:
        living = any(each.stage == "running" for each in users(s, pod))
        return slot.held if living and m.rules.no_figure_is_not_zero else 0
    return sum(each.has for each in users(s, pod))


def claim(m: Model, s: State, pod: int) -> Steps:
    """Begin to measure: the page says the target, a fence, then the announced sum."""
    slot = s.node.slots[pod]
    if slot is None or slot.reserved or s.agent.claims[pod] is not None:
        return
    if slot.held <= slot.target or (m.rules.store_before_claim and s.agent.stores[pod]):
        return
    if pod not in m.story.allocates:
        # nothing can change while it is measured: one step
        held = max(slot.target, spared(m, s, pod), driver_says(m, s, pod))
        if held < slot.held:
            yield (
                f"Core.claim(p{pod}) ... Ledger.settle: {held} held",
                with_slot(s, pod, slot._replace(held=held)),
            )
        return
    if m.rules.fence_before_pending:
        page = s.node.pages[pod]
        s = with_page(s, pod, Page(page.visible if page.buffered is None else page.buffered))
    if m.rules.sum_before_readings:
        total = announced(m, s, pod)
        yield f"Core.claim(p{pod}): {total} announced", with_claim(s, pod, Claim("summed", announced=total))
    else:
        yield f"Core.claim(p{pod}), the sum is left for later", with_claim(s, pod, Claim("read first"))


def reading(m: Model, s: State, pod: int) -> Steps:
    """Read the driver twice: an answer may be a sample from before its question, back to the last one."""
    under_way = s.agent.claims[pod]
    if under_way is None:
        return
    now = driver_says(m, s, pod)
    if under_way.step in ("read first", "summed"):
        if m.rules.two_readings:
            sampled = under_way._replace(step="sampled", sample=now)
            yield f"Reader.use(p{pod}), the first", with_claim(s, pod, sampled)
        else:
            for use in {0, now}:
                measured = under_way._replace(step="measured", use=use)
                yield f"Reader.use(p{pod}) says {use}", with_claim(s, pod, measured)
    elif under_way.step == "sampled":
        for use in {under_way.sample, now}:
            measured = under_way._replace(step="measured", sample=0, use=use)
            yield f"Reader.use(p{pod}), the second, says {use}", with_claim(s, pod, measured)


def settle(m: Model, s: State, pod: int) -> Steps:
    """Give back what is booked beyond the target, a grow under way, and what was measured."""
    under_way, slot = s.agent.claims[pod], s.node.slots[pod]
    if under_way is None or under_way.step != "measured" or slot is None:
        return
    s = with_claim(s, pod, None)
    if not under_way.current and m.rules.generation_checked:
        yield f"Ledger.settle(p{pod}) is refused as stale", s
        return
    use = under_way.use + (under_way.announced if m.rules.sum_before_readings else announced(m, s, pod))
    held = min(slot.held, max(slot.target, spared(m, s, pod), use))
    yield f"Ledger.settle(p{pod}): {use} in use, {held} held", with_slot(s, pod, slot._replace(held=held))


def spared(m: Model, s: State, pod: int) -> int:
    """Return what a grow under way still needs."""
    grow = s.agent.grows[pod]
    return grow.wanted if grow is not None and m.rules.settle_spares_grow else 0


def observe(m: Model, s: State, pod: int) -> Steps:
    """Put the driver's figures beside what a liar's slot holds."""
    container, slot = s.node.containers[pod], s.node.slots[pod]
    if not m.rules.members_from_outside:
        return  # the liar has struck its processes out of its usage page
    if pod != m.story.liar or slot is None or container.has in (0, container.shown):
        return
    s = with_container(s, pod, container._replace(shown=container.has))
    if m.rules.raise_held and container.has > slot.held:
        s = with_slot(s, pod, slot._replace(held=container.has))
    if container.has > slot.target and m.rules.raise_voids_claims:
        under_way = s.agent.claims[pod]
        if under_way is not None:
            s = with_claim(s, pod, under_way._replace(current=False))
    yield f"Core.raise_held(p{pod}, {container.has})", s


def stop_overbooker(m: Model, s: State, pod: int) -> Steps:
    """Stop a container that holds more than it was given, when the card does not have that."""
    slot, container = s.node.slots[pod], s.node.containers[pod]
    over = sum(each.held for each in s.node.slots if each is not None) > m.story.units
    if m.rules.stop_overbooker and over and slot is not None and container.has > slot.target:
        yield f"stop_overbooker(p{pod})", with_container(s, pod, Container("running", container.page_of))
