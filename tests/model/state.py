"""What there is: a state of the protocol, as values. Every index is a pod's UID.

One card, one container to a pod. Two things keep the number of states finite:

* **A resourceVersion is a yes or no.** Whoever has read an object remembers `fresh`: whether nobody has
  written it since. A write makes every other reader's `fresh` false (`wrote_node`, `wrote_pod`). The same
  for a slot's generation (`Claim.current`).
* **A request is one step**: it arrives and is answered at once, or (a fault, of which there are so many)
  its answer is lost, or it is given up by the sender and lies in `State.late` until it arrives, or never.
  A request that merely takes long is the same as one that was sent later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from tests.model.rules import Rules

Phase = Literal["absent", "waiting", "bound", "elsewhere", "gone", "unknown"]
"""Of a pod at the API server; ``gone``: deleted or ended; ``unknown``: only in `Agent.seen`, not seen yet."""

Stage = Literal["none", "admitted", "given", "running", "ended"]
"""Of a container at the kubelet; ``given``: PreStart has succeeded; ``running``: made, with its CDI edits."""

NO_SLOT = -1
T = TypeVar("T")


class Api(NamedTuple):
    """What the API server stores: pods, and one `GPUNode` (reservations and status)."""

    pods: tuple[Phase, ...]
    reserved: tuple[int, ...]
    status: tuple[int, ...]
    """Held by slot, as the agent last wrote it; `NO_SLOT`: the status does not have it."""
    blank: bool = False
    """The object was made anew, and its agent has not written it yet."""


class Slot(NamedTuple):
    """What the ledger has of one slot."""

    target: int
    held: int
    releasing: bool = False

    @property
    def reserved(self) -> bool:
        """Tell whether it was booked and never in force."""
        return not self.releasing and self.target == 0


class Page(NamedTuple):
    """A limits page: what processes load, and a store that the processor still keeps to itself."""

    visible: int = 0
    buffered: int | None = None

    @property
    def most(self) -> int:
        """Return the largest limit that a process may load from now on."""
        return self.visible if self.buffered is None else max(self.visible, self.buffered)


class Container(NamedTuple):
    """A container and its process: whose page it maps, what it has of the card, what it is about to get."""

    stage: Stage = "none"
    page_of: int = NO_SLOT
    has: int = 0
    alloc: Literal["", "announced", "passed", "unannounced", "dead"] = ""
    """``passed``: saw room and will call the driver; ``unannounced``: the same, without a word in `usage`;
    ``dead``: ended while it announced, and `usage` still says so."""
    shown: int = 0
    """What the driver has shown of a liar to the agent (no part of the protocol; an invariant asks)."""

    @property
    def announced(self) -> int:
        """Return what `usage` says to be pending."""
        return int(self.alloc in ("announced", "passed"))

    def ended(self) -> Container:
        """Return the container after its end; what it announced stays in `usage`."""
        alloc: Literal["", "dead"] = "dead" if self.announced else ""
        return Container("ended", self.page_of, alloc=alloc)

    @property
    def takes(self) -> int:
        """Return what it has and what nothing can keep it from getting."""
        return self.has + (self.alloc in ("passed", "unannounced"))


class Node(NamedTuple):
    """What lives on the node and outlives the agent."""

    slots: tuple[Slot | None, ...]
    pages: tuple[Page, ...]
    containers: tuple[Container, ...]


class Grow(NamedTuple):
    """A grow under way; `new`: from nothing, for a PreStart.

    ``read``: the write under way is to tell of it; ``said``: it has. `before` is what the slot held before.
    ``void``: a shrink was faster; its author does not know yet, and `overtook` one like that.
    """

    wanted: int
    new: bool
    before: int = NO_SLOT
    step: Literal["booked", "read", "said", "stored", "void"] = "booked"
    overtook: bool = False


class Claim(NamedTuple):
    """A measurement under way of what a draining slot uses."""

    step: Literal["read first", "summed", "sampled", "measured"]
    current: bool = True
    announced: int = 0
    sample: int = 0
    use: int = 0


class Write(NamedTuple):
    """A status on its way to the cluster; it tells of all grows that are ``read``."""

    step: Literal["built", "read"]
    plan: tuple[int, ...]
    fresh: bool = False


class Agent(NamedTuple):
    """What the agent has in memory; a crash forgets it."""

    up: bool
    seen: tuple[Phase, ...]
    grows: tuple[Grow | None, ...]
    stores: tuple[bool, ...]
    """Pages that do not say yet what the ledger says."""
    claims: tuple[Claim | None, ...]
    write: Write | None = None


class Bind(NamedTuple):
    """A bind under way in the extender."""

    step: Literal["read", "reserved"]
    fresh: bool
    pod_fresh: bool
    plan: tuple[int, ...] = ()


class Drop(NamedTuple):
    """A reservation about to be dropped."""

    step: Literal["read", "sure", "unread"]
    fresh: bool
    plan: tuple[int, ...] = ()


class Extender(NamedTuple):
    """What the extender has in memory; a crash forgets it."""

    binds: tuple[Bind | None, ...]
    drops: tuple[Drop | None, ...]


class Late(NamedTuple):
    """A request that its sender has given up and that may still arrive."""

    kind: Literal["put_status", "reserve", "bind", "drop_reservation"]
    pod: int
    fresh: bool
    plan: tuple[int, ...] = ()


class Left(NamedTuple):
    """How often each of these may still happen."""

    crashes: int
    losses: int
    resizes: int
    thefts: int
    evictions: int
    deletions: int


class State(NamedTuple):
    """Everything."""

    api: Api
    node: Node
    agent: Agent
    extender: Extender
    left: Left
    late: tuple[Late, ...] = ()
    old_agent: tuple[int, int] | None = None
    """A store into a page that a stopped first agent will still make, when there may be two."""
    harm: str = ""
    """Something that must never happen and that leaves no other trace."""


@dataclass(frozen=True)
class Story:
    """What is searched: who is there at the beginning, and how much may happen."""

    name: str
    units: int
    wants: tuple[int, ...]
    running: int = 0
    """The first so many pods run already, with all of their memory in use if `full`."""
    full: bool = False
    heir_of: tuple[int, int] | None = None
    """(a, b): pod b is created under the name of a, at once when a is deleted by force."""
    resizable: tuple[int, ...] = ()
    liar: int | None = None
    crashes: int = 0
    losses: int = 0
    resizes: int = 0
    thefts: int = 0
    evictions: int = 0
    deletions: int = 0
    """How often somebody deletes the `GPUNode`."""
    late_stores: bool = False
    """Whether a store may stay in the processor for a while."""
    starts: tuple[int, ...] = ()
    """The pods whose containers the kubelet has started; others stay bound and never start."""
    allocates: tuple[int, ...] = ()
    """The pods whose processes allocate and free."""
    stale_views: bool = False
    """Whether agent and kubelet learn later than others that a pod is there, or gone."""
    ends: bool = True
    """Whether users delete pods and programs free memory; else only Gaia can put an end to anything."""
    figures: bool = True
    """Whether the driver says what each process uses."""
    elsewhere: bool = False
    """Whether a pod may be bound to another node."""


@dataclass(frozen=True)
class Model:
    """The rules that are kept, and the story that is searched."""

    rules: Rules
    story: Story


Steps = Iterator[tuple[str, State]]


def put(row: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    """Return `row` with one place changed."""
    return (*row[:index], value, *row[index + 1 :])


def with_slot(s: State, pod: int, slot: Slot | None) -> State:
    """Return the state with another entry in the ledger."""
    return s._replace(node=s.node._replace(slots=put(s.node.slots, pod, slot)))


def with_page(s: State, pod: int, page: Page) -> State:
    """Return the state with another page."""
    return s._replace(node=s.node._replace(pages=put(s.node.pages, pod, page)))


def with_container(s: State, pod: int, container: Container) -> State:
    """Return the state with another container."""
    return s._replace(node=s.node._replace(containers=put(s.node.containers, pod, container)))


def with_grow(s: State, pod: int, grow: Grow | None) -> State:
    """Return the state with another grow."""
    return s._replace(agent=s.agent._replace(grows=put(s.agent.grows, pod, grow)))


def with_claim(s: State, pod: int, claim: Claim | None) -> State:
    """Return the state with another claim."""
    return s._replace(agent=s.agent._replace(claims=put(s.agent.claims, pod, claim)))


def with_bind(s: State, pod: int, bind: Bind | None) -> State:
    """Return the state with another bind."""
    return s._replace(extender=s.extender._replace(binds=put(s.extender.binds, pod, bind)))


def with_drop(s: State, pod: int, drop: Drop | None) -> State:
    """Return the state with another drop."""
    return s._replace(extender=s.extender._replace(drops=put(s.extender.drops, pod, drop)))


def with_phase(m: Model, s: State, pod: int, phase: Phase) -> State:
    """Return the state with a pod written by anybody; without stale views it is seen, and ended, at once."""
    s = wrote_pod(m, s._replace(api=s.api._replace(pods=put(s.api.pods, pod, phase))), pod)
    if m.story.stale_views or phase not in ("bound", "gone"):
        return s
    container = s.node.containers[pod]
    if phase == "gone" and container.stage != "none":
        s = with_container(s, pod, container.ended())
    if s.agent.up:
        s = s._replace(agent=s.agent._replace(seen=put(s.agent.seen, pod, phase)))
    return s


def to_store(s: State, pod: int, wanted: bool = True) -> State:
    """Note whether the slot's page has to be stored."""
    return s._replace(agent=s.agent._replace(stores=put(s.agent.stores, pod, wanted)))


def wrote_node(m: Model, s: State) -> State:
    """Tell every reader of the `GPUNode` that what it has read is old.

    Its PUT would get 409 and it would do what it does then; nothing else comes in between, so it is done at
    once. Where a rule is left out, the old request stays and will be obeyed.
    """
    with_version = m.rules.status_carries_version
    agent, extender = s.agent, s.extender
    write, grows = agent.write, agent.grows
    if write is not None and write.step == "read":
        if not with_version:
            write = write._replace(fresh=False)
        elif not m.rules.status_rebuilt:
            write = Write("built", write.plan)
        else:
            write = None
            grows = tuple(
                g._replace(step="booked") if g is not None and g.step == "read" else g for g in grows
            )
    keep = not m.rules.reservation_carries_version
    binds = tuple(
        b if b is None or b.step != "read" else b._replace(fresh=False) if keep else None
        for b in extender.binds
    )
    drops = tuple(
        d if d is None or not d.fresh else d._replace(fresh=False) if keep else None for d in extender.drops
    )
    late = s.late and tuple(
        each if each.kind == "bind" else each._replace(fresh=False)
        for each in s.late
        if each.kind == "bind" or (not with_version if each.kind == "put_status" else keep)
    )
    return s._replace(
        agent=agent._replace(write=write, grows=grows), extender=Extender(binds, drops), late=late
    )


def wrote_pod(m: Model, s: State, pod: int) -> State:
    """Tell every reader of the pod that what it has read is old; see `wrote_node`."""
    keep = not m.rules.binding_carries_version
    bind = s.extender.binds[pod]
    if bind is not None and bind.pod_fresh:
        s = with_bind(s, pod, bind._replace(pod_fresh=False) if keep else None)
    late = s.late and tuple(
        each._replace(fresh=False) if each.kind == "bind" and each.pod == pod else each
        for each in s.late
        if keep or each.kind != "bind" or each.pod != pod
    )
    return s._replace(late=late)


def lose(m: Model, s: State, request: Late) -> State:
    """Return the state in which a request was given up and may still arrive."""
    return s._replace(late=tuple(sorted((*s.late, request))), left=s.left._replace(losses=s.left.losses - 1))


def counted(m: Model, reserved: tuple[int, ...], status: tuple[int, ...], pod: int) -> int:
    """Return what a pod counts on the card, for both sides: its slot in the status, else its reservation."""
    slot = max(0, status[pod])
    if not m.rules.free_counts_status:
        return reserved[pod] or slot
    if not m.rules.free_counts_reservations:
        return slot
    return reserved[pod] if status[pod] == NO_SLOT else slot


def free(m: Model, reserved: tuple[int, ...], status: tuple[int, ...]) -> int:
    """Return what is free on the card as the `GPUNode` says; below zero: too much is counted."""
    return m.story.units - sum(counted(m, reserved, status, pod) for pod in range(len(reserved)))
