"""Breadth first through all states: the first counterexample found is a shortest one."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.model.agent import agent_steps
from tests.model.extender import extender_steps
from tests.model.invariants import broken, quiet
from tests.model.rules import Rules
from tests.model.state import Model, State, Steps, Story
from tests.model.world import begin, world_steps

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Found:
    """What a search found; `sentence` is empty when there was nothing to find."""

    name: str
    states: int
    seconds: float
    sentence: str = ""
    trace: tuple[tuple[str, str], ...] = ()
    """By step its label, and what there is after it."""

    def __str__(self) -> str:
        """Return the trace, a line to a step."""
        head = f"{self.name}: {self.states} states, {self.seconds:.1f} s"
        if not self.sentence:
            return head
        lines = [f"{number:3} {label:62} {there}" for number, (label, there) in enumerate(self.trace)]
        return "\n".join([f"{head}: {self.sentence}", *lines])


@dataclass(frozen=True)
class World(Generic[S]):
    """What can be searched.

    `spent` tells whether a step has used up something that happens only so often (a crash, a loss, a wish of
    a user): the quiet end has to be reached by the others.
    """

    name: str
    first: S
    steps: Callable[[S], Iterable[tuple[str, S]]]
    broken: Callable[[S], str]
    quiet: Callable[[S], bool]
    spent: Callable[[S, S], bool]
    summary: Callable[[S], str]


def explore(world: World[S], most: int = 10_000_000) -> Found:
    """Search all states for one that is broken, or from which the quiet end cannot be reached.

    Raises:
        RuntimeError: more than `most` states.
    """
    with _no_collections():
        return _explore(world, most)


def _explore(world: World[S], most: int) -> Found:
    began = time.monotonic()
    number = {world.first: 0}
    states, parents, labels = [world.first], array("l", [-1]), [world.name]
    before, after = array("l"), array("l")

    def found(sentence: str = "", at: int = -1) -> Found:
        back = []
        while at >= 0:
            back.append((labels[at], world.summary(states[at])))
            at = parents[at]
        return Found(world.name, len(states), time.monotonic() - began, sentence, tuple(reversed(back)))

    if sentence := world.broken(world.first):
        return found(sentence, 0)
    for at, s in enumerate(states):  # which grows meanwhile
        for label, new in world.steps(s):
            there = number.get(new)
            if there is None:
                there = number[new] = len(states)
                states.append(new)
                parents.append(at)
                labels.append(label)
                if sentence := world.broken(new):
                    return found(sentence, there)
                if there > most:
                    raise RuntimeError(f"{world.name} has more than {most} states")
            if not world.spent(s, new):
                before.append(at)
                after.append(there)
    stuck = _stuck(states, world.quiet, before, after)
    return found() if stuck is None else found("from here the quiet end cannot be reached", stuck)


def _stuck(states: list[S], quiet: Callable[[S], bool], before: array[int], after: array[int]) -> int | None:
    """Return the first state from which no quiet one can be reached."""
    into: list[list[int]] = [[] for _ in states]
    for source, target in zip(before, after, strict=True):
        into[target].append(source)
    reach = bytearray(len(states))
    todo = [at for at, s in enumerate(states) if quiet(s)]
    for at in todo:
        reach[at] = 1
    while todo:
        for source in into[todo.pop()]:
            if not reach[source]:
                reach[source] = 1
                todo.append(source)
    return next((at for at in range(len(states)) if not reach[at]), None)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Look for no cycles: there are none, and looking through all these tuples takes most of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


# -- the protocol


def search(story: Story, rules: Rules, most: int = 10_000_000) -> Found:
    """Search a story; see `explore`."""
    m = Model(rules, story)
    return explore(
        World(
            name=story.name,
            first=begin(m),
            steps=lambda s: steps(m, s),
            broken=lambda s: broken(m, s),
            quiet=lambda s: quiet(m, s),
            spent=lambda s, new: s.left != new.left,
            summary=summary,
        ),
        most,
    )


def steps(m: Model, s: State) -> Steps:
    """Return everything that may happen next."""
    yield from agent_steps(m, s)
    yield from extender_steps(m, s)
    yield from world_steps(m, s)


def states_of(m: Model, most: int) -> Iterator[State]:
    """Yield states, the nearest first, but no more than `most`."""
    known = {begin(m)}
    todo = list(known)
    for s in todo:
        yield s
        for _, new in steps(m, s):
            if new not in known and len(todo) < most:
                known.add(new)
                todo.append(new)


def summary(s: State) -> str:
    """Return a state in a line: by pod what the API server, the ledger, the page and the process have."""
    parts = []
    for pod, slot in enumerate(s.node.slots):
        container, page = s.node.containers[pod], s.node.pages[pod]
        status = "-" if s.api.status[pod] < 0 else s.api.status[pod]
        ledger = "-" if slot is None else f"{slot.target}/{slot.held}"
        pages = page.visible if page.buffered is None else f"{page.visible}<{page.buffered}"
        parts.append(
            f"p{pod} {s.api.pods[pod]} reserved {s.api.reserved[pod]} status {status} "
            f"ledger {ledger} page {pages} has {container.has}{container.alloc[:1]}"
        )
    return " | ".join(parts)
