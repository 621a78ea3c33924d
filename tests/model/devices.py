"""The device IDs that the kubelet is told: a model of its own, beside the protocol.

An ID stands for a unit of memory but for no unit in particular. The kubelet counts IDs and knows nothing of
slots that change their size, so the agent makes the number of healthy free IDs say what is free: too many
free IDs are called sick, and IDs beyond the card's number appear when slots gave back what their IDs stand
for. Until the kubelet has taken a list in, the reservation and PreStart are the gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Literal, NamedTuple

from tests.model.search import Found, World, explore

Stage = Literal["none", "allocated", "slot", "ended"]
"""Of a pod: ``allocated``: has IDs and no slot; ``slot``: has both and runs; ``ended``: the IDs are free."""
Health = Literal["", "healthy", "sick"]
"""Of an ID in a list; empty: not in it."""

UNITS = 2
SIZES = (2, 1, 1)
"""What each pod asks for."""
IDS = UNITS + 2


def _rule(sentence: str) -> bool:
    kept: bool = field(default=True, metadata={"rule": sentence})
    return kept


@dataclass(frozen=True)
class IdRules:
    """The rules about IDs, each a switch."""

    held_counts: bool = _rule("What is held is not free, whatever is in force.")
    handed_out_counts: bool = _rule("IDs that were handed out and have no slot yet are not free.")
    corrections_use_free_ids: bool = _rule("Only an ID that nobody has is called sick or taken away.")
    allocate_marks: bool = _rule("Allocate marks its IDs before the corrected list is made.")
    marks_persist: bool = _rule("The marks outlive the agent.")
    marks_fall_after_read: bool = _rule("A mark falls by a read of the kubelet's record begun after it.")
    marks_fall: bool = _rule("A mark falls when no pod has the ID any more.")
    extra_ids_appear: bool = _rule("Where free units have no IDs left, more IDs appear.")

    def without(self, name: str) -> IdRules:
        """Return the rules with one left out."""
        return replace(self, **{name: False})


ID_RULES = {each.name: each.metadata["rule"] for each in fields(IdRules)}


class Ids(NamedTuple):
    """Everything."""

    stages: tuple[Stage, ...]
    has: tuple[tuple[int, ...], ...]
    """The kubelet's record: the IDs of each pod."""
    target: tuple[int, ...]
    held: tuple[int, ...]
    marks: frozenset[int]
    """IDs that the agent takes to be in use."""
    known: tuple[Health, ...]
    """The list that the kubelet has taken in last."""
    read: frozenset[int] | None = None
    """What a read of the kubelet's record under way will say to be in use by nobody."""
    restarts: int = 1
    shrinks: int = 1


def lists(rules: IdRules, s: Ids) -> tuple[Health, ...]:
    """Return the list that the agent sends."""
    booked = sum(s.held if rules.held_counts else s.target)
    waiting = [
        each
        for pod, ids in enumerate(s.has)
        if s.stages[pod] == "allocated"
        for each in ids
        if each in s.marks and rules.handed_out_counts
    ]
    free = max(0, UNITS - booked - len(waiting))
    health: list[Health] = ["sick" if each < UNITS else "" for each in range(IDS)]
    in_use = s.marks if rules.corrections_use_free_ids else frozenset[int]()
    for each in in_use:
        health[each] = "healthy"
    others = [each for each in range(IDS) if each not in in_use]
    for each in others[:free]:
        if each < UNITS or rules.extra_ids_appear:
            health[each] = "healthy"
    return tuple(health)


def steps(rules: IdRules, s: Ids) -> Iterator[tuple[str, Ids]]:
    """Return everything that may happen next."""
    listed = lists(rules, s)
    if s.known != listed:
        yield "PodNode.advertise: the kubelet takes the list in", s._replace(known=listed)
    taken = {each for ids in s.has for each in ids}
    for pod, stage in enumerate(s.stages):
        if stage == "none":
            free = [each for each in range(IDS) if s.known[each] == "healthy" and each not in taken]
            for ids in combinations(free, SIZES[pod]):
                after = _pod(s, pod, "allocated", ids)
                if rules.allocate_marks:
                    after = after._replace(marks=s.marks | set(ids))
                if s.read is not None and rules.marks_fall_after_read:
                    after = after._replace(read=s.read - set(ids))
                yield f"PodNode.allocate(p{pod}, {list(ids)})", after
        elif stage == "allocated":
            if sum(s.held) + SIZES[pod] <= UNITS:
                got = _amounts(s, pod, SIZES[pod], SIZES[pod])
                yield f"PodNode.prestart(p{pod})", _pod(got, pod, "slot", s.has[pod])
            yield f"p{pod} is deleted before it starts", _pod(s, pod, "ended", ())
        elif stage == "slot":
            if s.shrinks and s.target[pod] > 1:
                less = _amounts(s, pod, 1, s.held[pod])._replace(shrinks=s.shrinks - 1)
                yield f"Ledger.resize(p{pod}, 1)", less
            yield f"p{pod} ends", _pod(_amounts(s, pod, 0, s.held[pod]), pod, "ended", ())
        if s.held[pod] > s.target[pod]:
            yield f"Ledger.settle(p{pod})", _amounts(s, pod, s.target[pod], s.target[pod])
    if s.read is None:
        unused = s.marks - taken
        if unused and rules.marks_fall:
            yield (
                f"the kubelet's record is read: nobody has {sorted(unused)}",
                s._replace(read=frozenset(range(IDS)) - taken),
            )
    else:
        yield "marks fall", s._replace(marks=s.marks - s.read, read=None)
    if s.restarts:
        marks = s.marks if rules.marks_persist else frozenset[int]()
        yield "the agent starts again", s._replace(marks=marks, read=None, restarts=s.restarts - 1)


def _pod(s: Ids, pod: int, stage: Stage, ids: tuple[int, ...]) -> Ids:
    stages = (*s.stages[:pod], stage, *s.stages[pod + 1 :])
    return s._replace(stages=stages, has=(*s.has[:pod], ids, *s.has[pod + 1 :]))


def _amounts(s: Ids, pod: int, target: int, held: int) -> Ids:
    return s._replace(
        target=(*s.target[:pod], target, *s.target[pod + 1 :]),
        held=(*s.held[:pod], held, *s.held[pod + 1 :]),
    )


def broken(rules: IdRules, s: Ids) -> str:
    """Return what is wrong: an ID in use is called sick, or the kubelet believes in what is not so."""
    listed = lists(rules, s)
    for pod, ids in enumerate(s.has):
        for each in ids:
            if listed[each] != "healthy":
                return f"ID {each} of p{pod} is {listed[each] or 'gone'}: its container could not start again"
    taken = {each for ids in s.has for each in ids}
    if s.known != listed or s.marks != taken:
        return ""  # lists, or the agent's knowledge of the kubelet's record, are on their way
    believed = sum(health == "healthy" for health in s.known) - len(taken)
    waiting = sum(SIZES[pod] for pod, stage in enumerate(s.stages) if stage == "allocated")
    free = max(0, UNITS - sum(s.held) - waiting)
    return "" if believed == free else f"the kubelet believes {believed} to be free, {free} are"


def quiet(s: Ids) -> bool:
    """Tell whether all is over and the list is as at the beginning."""
    over = all(stage in ("none", "ended") for stage in s.stages) and not any(s.held) and not s.marks
    return over and s.known == ("healthy",) * UNITS + ("",) * (IDS - UNITS)


def summary(s: Ids) -> str:
    """Return a state in a line."""
    return f"IDs {list(s.has)} held {list(s.held)} marks {sorted(s.marks)} kubelet {list(s.known)}"


def search_ids(rules: IdRules) -> Found:
    """Search everything that may happen to three pods on a card of two units."""
    count = len(SIZES)
    none: Stage = "none"
    first = Ids((none,) * count, ((),) * count, (0,) * count, (0,) * count, frozenset(), ())
    return explore(
        World(
            name="three pods and their IDs",
            first=first._replace(known=lists(rules, first)),
            steps=lambda s: steps(rules, s),
            broken=lambda s: broken(rules, s),
            quiet=quiet,
            spent=lambda s, new: (s.restarts, s.shrinks) != (new.restarts, new.shrinks),
            summary=summary,
        )
    )
