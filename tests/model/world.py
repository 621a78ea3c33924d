"""All that is not Gaia's to decide: users, API server, kubelet, processes, and every fault."""

from __future__ import annotations

from tests.model.agent import wrote_status
from tests.model.extender import bound, reserved
from tests.model.state import (
    NO_SLOT,
    Agent,
    Api,
    Container,
    Extender,
    Left,
    Model,
    Node,
    Page,
    Phase,
    Slot,
    State,
    Steps,
    put,
    with_container,
    with_page,
    with_phase,
    wrote_node,
)


def begin(m: Model) -> State:
    """Return the state in which the story begins."""
    story, count = m.story, len(m.story.wants)
    runs = [pod < story.running for pod in range(count)]
    heir = None if story.heir_of is None else story.heir_of[1]
    given = tuple(want if run else 0 for want, run in zip(story.wants, runs, strict=True))
    phases: tuple[Phase, ...] = tuple(
        "bound" if runs[pod] else "absent" if pod == heir else "waiting" for pod in range(count)
    )
    seen: tuple[Phase, ...] = tuple("bound" if run else "unknown" for run in runs)
    return State(
        api=Api(phases, given, tuple(units or NO_SLOT for units in given)),
        node=Node(
            slots=tuple(Slot(units, units) if units else None for units in given),
            pages=tuple(Page(units) for units in given),
            containers=tuple(
                Container("running", pod, units if story.full else 0) if units else Container()
                for pod, units in enumerate(given)
            ),
        ),
        agent=_fresh(count)._replace(up=True, seen=seen),
        extender=_nothing(count),
        left=Left(story.crashes, story.losses, story.resizes, story.thefts, story.evictions, story.deletions),
    )


def _fresh(count: int) -> Agent:
    unknown: Phase = "unknown"
    return Agent(False, (unknown,) * count, (None,) * count, (False,) * count, (None,) * count)


def _nothing(count: int) -> Extender:
    return Extender((None,) * count, (None,) * count)


def world_steps(m: Model, s: State) -> Steps:
    """Return what may happen without Gaia."""
    for pod, container in enumerate(s.node.containers):
        yield from users(m, s, pod)
        yield from kubelet(m, s, pod, container)
        if container.stage == "running" and pod in m.story.allocates:
            yield from process(m, s, pod, container)
        if m.story.stale_views:
            yield from watch(s, pod)
        stored = s.node.pages[pod].buffered
        if stored is not None:
            yield f"the store into the page of p{pod} is seen", with_page(s, pod, Page(stored))
    yield from arrivals(m, s)
    if s.left.deletions:
        yield from deletion(m, s)
    if s.left.crashes:
        yield from crashes(m, s)
    if s.old_agent is not None:
        pod, units = s.old_agent
        yield (
            f"the first agent goes on: Core._store(p{pod}, {units})",
            with_page(s, pod, Page(units))._replace(old_agent=None),
        )


def users(m: Model, s: State, pod: int) -> Steps:
    """A pod is deleted (perhaps by force: its container may still run) or ends; a name comes back."""
    phase = s.api.pods[pod]
    if phase in ("waiting", "bound") and m.story.ends:
        after = with_phase(m, s, pod, "gone")
        if m.story.heir_of is not None and m.story.heir_of[0] == pod:
            heir = m.story.heir_of[1]
            yield f"p{pod} is deleted by force, p{heir} takes its name", with_phase(m, after, heir, "waiting")
        else:
            yield f"p{pod} is deleted", after
    if phase == "waiting" and m.story.elsewhere:
        yield f"p{pod} is bound to another node", with_phase(m, s, pod, "elsewhere")


def kubelet(m: Model, s: State, pod: int, container: Container) -> Steps:
    """The kubelet asks for devices, has the container created, and ends it some time after its pod."""
    if container.stage == "none" and s.api.pods[pod] == "bound" and pod in m.story.starts:
        yield f"the kubelet calls PreStart for p{pod}", with_container(s, pod, Container("admitted"))
    if container.stage == "given":
        for owner in resolves(m, s, pod, container):
            yield (
                f"p{pod} starts with the slot of p{owner}",
                with_container(s, pod, Container("running", owner)),
            )
    if s.api.pods[pod] == "gone" and container.stage in ("admitted", "given", "running"):
        yield f"the container of p{pod} ends", with_container(s, pod, container.ended())


def resolves(m: Model, s: State, pod: int, container: Container) -> list[int]:
    """Return to whose slot the container's CDI name may lead; a release has taken the name away."""
    slot = s.node.slots[container.page_of]
    found = [container.page_of] if slot is not None and not slot.releasing else []
    if not m.rules.names_never_recur:
        # the runtime's cache still has what the same name meant before
        found += [
            each for each, other in enumerate(s.node.containers) if each != pod and other.page_of == each
        ]
    return found


def process(m: Model, s: State, pod: int, container: Container) -> Steps:
    """Allocate (announce, read the limit, call the driver) and free, a unit at a time."""
    limit = s.node.pages[container.page_of].visible
    fits = container.has + 1 <= limit
    if container.alloc == "":
        if not m.rules.announce_before_limit:
            if fits:
                yield (
                    f"p{pod} sees room, unannounced",
                    _alloc(s, pod, container._replace(alloc="unannounced")),
                )
        elif container.has < m.story.units:
            yield f"p{pod} announces", _alloc(s, pod, container._replace(alloc="announced"))
        if container.has and m.story.ends:
            has = container.has - 1
            yield (
                f"p{pod} frees",
                _alloc(s, pod, container._replace(has=has, shown=min(container.shown, has))),
            )
        if pod == m.story.liar and s.left.thefts and sum(c.has for c in s.node.containers) < m.story.units:
            left = s.left._replace(thefts=s.left.thefts - 1)
            yield (
                f"p{pod} takes memory past its limit",
                _alloc(s._replace(left=left), pod, container._replace(has=container.has + 1)),
            )
    elif container.alloc == "announced":
        yield (
            f"p{pod} reads its limit: {'room' if fits else 'none'}",
            _alloc(s, pod, container._replace(alloc="passed" if fits else "")),
        )
    else:
        yield f"p{pod} calls the driver", _alloc(s, pod, container._replace(has=container.has + 1, alloc=""))


def _alloc(s: State, pod: int, container: Container) -> State:
    return with_container(s, pod, container)


def watch(s: State, pod: int) -> Steps:
    """The agent's watch shows it the pod as it is by now (or a live read does)."""
    phase, seen = s.api.pods[pod], s.agent.seen[pod]
    mine = s.node.containers[pod].stage != "none" or s.node.slots[pod] is not None
    if s.agent.up and mine and phase != seen:
        agent = s.agent._replace(seen=put(s.agent.seen, pod, phase))
        yield f"the agent sees that p{pod} is {phase}", s._replace(agent=agent)


def arrivals(m: Model, s: State) -> Steps:
    """A request that its sender gave up arrives after all."""
    for late in dict.fromkeys(s.late):
        rest = list(s.late)
        rest.remove(late)
        after = s._replace(late=tuple(rest))
        name = f"the {late.kind} that was given up arrives (p{late.pod})"
        if late.kind == "put_status":
            yield name, wrote_status(m, after, late.plan)
        elif late.kind == "bind":
            yield name, bound(m, after, late.pod)
        else:
            yield name, reserved(m, after, late.plan)


def deletion(m: Model, s: State) -> Steps:
    """Somebody deletes the `GPUNode`, and it is made again, empty.

    Not while a pod is bound and not started: its reservation would be lost, and nobody can help that.
    """
    count = len(s.api.pods)
    slots = all(
        status != NO_SLOT or not units for units, status in zip(s.api.reserved, s.api.status, strict=True)
    )
    binding = any(each is not None and each.step != "read" for each in s.extender.binds)
    if slots and not binding and not any(each.kind == "bind" for each in s.late):
        left = s.left._replace(deletions=s.left.deletions - 1)
        empty = s._replace(api=Api(s.api.pods, (0,) * count, (NO_SLOT,) * count, blank=True), left=left)
        yield "the GPUNode is deleted and made again", wrote_node(m, empty)


def crashes(m: Model, s: State) -> Steps:
    """Agent or extender is killed; what it had in memory is forgotten, what it has stored is seen."""
    left = s.left._replace(crashes=s.left.crashes - 1)
    count = len(s.api.pods)
    if s.agent.up:
        pages = tuple(page if page.buffered is None else Page(page.buffered) for page in s.node.pages)
        killed = s._replace(agent=_fresh(count), node=s.node._replace(pages=pages), left=left)
        yield "the agent is killed", killed
        if not m.rules.one_agent:
            for pod, slot in enumerate(s.node.slots):
                if s.agent.stores[pod] and slot is not None:
                    yield (
                        "the agent is stopped, and a second one starts",
                        killed._replace(old_agent=(pod, slot.target)),
                    )
    if s.extender != _nothing(count):
        yield "the extender is killed", s._replace(extender=_nothing(count), left=left)
