"""What must be true of every state, and the quiet end that every state must be able to reach."""

from __future__ import annotations

from tests.model.state import NO_SLOT, Model, State, counted


def broken(m: Model, s: State) -> str:
    """Return a sentence about the first invariant that the state breaks; empty when it is sound."""
    if s.harm:
        return s.harm
    honest = m.story.liar is None
    if honest and (held := sum(slot.held for slot in s.node.slots if slot is not None)) > m.story.units:
        return f"{held} units are held on a card of {m.story.units}"
    takes = sum(each.takes for each in s.node.containers)
    if honest and takes > m.story.units:
        return f"memory was given away that a process still has or may get: {takes} units on {m.story.units}"
    due = [owed(s, m, pod) for pod in range(len(s.api.pods))]
    if honest and sum(due) > m.story.units:
        return f"two owners: {due} on a card of {m.story.units}"
    for pod in range(len(s.api.pods)):
        if sentence := _of_pod(m, s, pod, due[pod]):
            return sentence
    return ""


def owed(s: State, m: Model, pod: int) -> int:
    """Return what a pod has a right to, or can take whatever anybody does."""
    slot, container = s.node.slots[pod], s.node.containers[pod]
    due = container.takes
    if slot is not None:
        due = max(due, slot.target)
    if container.stage in ("given", "running") and slot is not None:
        due = max(due, s.node.pages[pod].most)
    starts = container.stage in ("none", "admitted")
    if s.api.pods[pod] == "bound" and starts and (slot is None or slot.reserved):
        due = max(due, m.story.wants[pod])
    return due


def _of_pod(m: Model, s: State, pod: int, due: int) -> str:
    slot, container, liar = s.node.slots[pod], s.node.containers[pod], pod == m.story.liar
    held = 0 if slot is None else slot.held
    if slot is not None and slot.target > slot.held:
        return f"p{pod} has a target of {slot.target} and holds {slot.held}"
    if container.stage in ("given", "running"):
        if container.page_of != pod:
            return f"p{pod} was given the slot of p{container.page_of}"
        if s.node.pages[pod].most > held:
            return f"the page of p{pod} allows {s.node.pages[pod].most}, {held} is held"
        if s.api.pods[pod] == "bound" and (slot is None or not slot.target):
            return f"p{pod} lives and has lost its slice"
    if not liar and container.takes > held:
        return f"memory is given away that p{pod} has or may still get: {container.takes}, held {held}"
    if liar and min(container.shown, container.has) > held:
        return f"the driver has shown {container.shown} of p{pod}, {held} is held"
    known = counted(m, s.api.reserved, s.api.status, pod)
    if not liar and known < due and not s.api.blank:
        if slot is None or slot.reserved:
            return f"a reservation is lost: p{pod} is bound to {due} units, {known} counted"
        return f"the cluster believes that p{pod} has {known} units; it has {due}"
    return ""


def quiet(m: Model, s: State) -> bool:
    """Tell whether all is over and nothing is booked; where nobody ends, whether no card is overbooked."""
    if not m.story.ends:
        both = zip(s.node.slots, s.node.containers, strict=True)
        return sum(max(0 if slot is None else slot.held, each.has) for slot, each in both) <= m.story.units
    return (
        all(phase in ("absent", "gone", "elsewhere") for phase in s.api.pods)
        and all(each.stage in ("none", "ended") for each in s.node.containers)
        and not any(s.node.slots)
        and not any(s.api.reserved)
        and all(status == NO_SLOT for status in s.api.status)
    )
