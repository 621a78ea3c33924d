"""The extender: reservations in the `GPUNode`, Bindings, and reservations that nobody needs any more.

It may be killed between any two steps; kube-scheduler asks again, it or another replica.
"""

from __future__ import annotations

from tests.model.state import (
    Bind,
    Drop,
    Late,
    Model,
    State,
    Steps,
    free,
    lose,
    put,
    with_bind,
    with_drop,
    with_phase,
    wrote_node,
    wrote_pod,
)


def extender_steps(m: Model, s: State) -> Steps:
    """Return what the extender may do next."""
    for pod in range(len(s.api.pods)):
        yield from bind(m, s, pod)
        yield from drop_reservation(m, s, pod)


def bind(m: Model, s: State, pod: int) -> Steps:
    """Read GPUNode and pod, PUT the reservation, send the Binding with the version read before that PUT."""
    under_way, want = s.extender.binds[pod], m.story.wants[pod]
    if under_way is None:
        if s.api.pods[pod] != "waiting" or (s.api.blank and m.rules.blank_offers_nothing):
            return
        mine = put(s.api.reserved, pod, want)
        if free(m, mine, s.api.status) < 0:
            return
        if not m.rules.reservation_before_binding:
            yield f"bind(p{pod}) without a reservation", with_phase(m, s, pod, "bound")
        if s.api.reserved[pod] and not m.rules.bind_always_puts:
            yield (
                f"read_node_and_pod(p{pod}): reserved already",
                with_bind(s, pod, Bind("reserved", False, True)),
            )
        else:
            # where the pod is read later, nothing is known of it yet
            yield (
                f"read_node_and_pod(p{pod})",
                with_bind(s, pod, Bind("read", True, m.rules.version_before_put, mine)),
            )
    elif under_way.step == "read":
        yield from reserve(m, s, pod, under_way)
    elif not under_way.pod_fresh and not m.rules.version_before_put:
        if s.api.pods[pod] == "waiting":
            yield (
                f"read_node_and_pod(p{pod}), the pod only now",
                with_bind(s, pod, under_way._replace(pod_fresh=True)),
            )
        else:
            yield f"bind(p{pod}) ends: not waiting any more", with_bind(s, pod, None)
    else:
        # the 409 of one that is not `pod_fresh` has happened in `wrote_pod`
        yield f"bind(p{pod})", bound(m, with_bind(s, pod, None), pod)
        if s.left.losses:
            given_up = with_bind(s, pod, None)
            yield f"bind(p{pod}) is given up", lose(m, given_up, Late("bind", pod, under_way.pod_fresh))


def reserve(m: Model, s: State, pod: int, under_way: Bind) -> Steps:
    """PUT the reservations as they were read, with this one; the 409 has happened in `wrote_node`."""
    written = reserved(m, s, under_way.plan, new=m.rules.reservation_is_new)
    kept = Bind("reserved", False, under_way.pod_fresh)
    yield f"reserve(p{pod})", with_bind(written, pod, kept)
    if s.left.losses:
        late = Late("reserve", pod, under_way.fresh, under_way.plan)
        yield f"reserve(p{pod}) is given up", lose(m, with_bind(s, pod, None), late)


def reserved(m: Model, s: State, plan: tuple[int, ...], *, new: bool = True) -> State:
    """Write all reservations; where nothing is `new` and nothing changes there is no new version."""
    after = s._replace(api=s.api._replace(reserved=plan))
    return after if after.api == s.api and not new else wrote_node(m, after)


def bound(m: Model, s: State, pod: int) -> State:
    """Let the API server answer a Binding: only a pod that waits is bound."""
    return with_phase(m, s, pod, "bound") if s.api.pods[pod] == "waiting" else s


def drop_reservation(m: Model, s: State, pod: int) -> Steps:
    """Read GPUNode, make sure at the API server (an unbound pod is written), PUT with the first version."""
    under_way, phase = s.extender.drops[pod], s.api.pods[pod]
    if under_way is None:
        if not s.api.reserved[pod] or (phase == "gone" and not m.rules.drop_when_gone):
            return
        less = put(s.api.reserved, pod, 0)
        if phase in ("gone", "elsewhere"):
            # for good: with a version of any time before, nothing can go wrong between read and PUT
            yield f"drop_reservation(p{pod}): it is {phase}", reserved(m, s, less)
            return
        if phase == "waiting":
            yield (
                f"drop_reservation(p{pod}) begins: GPUNode is read",
                with_drop(s, pod, Drop("read", True, less)),
            )
        if not m.rules.drop_asks_live:
            # a cache that has not seen the pod yet
            yield (
                f"drop_reservation(p{pod}) begins: a cache does not show it",
                with_drop(s, pod, Drop("sure", True, less)),
            )
    elif under_way.step == "read":
        if phase == "bound":
            yield f"drop_reservation(p{pod}) ends: it is bound", with_drop(s, pod, None)
            return
        first = m.rules.drop_first_version
        sure = with_drop(s, pod, under_way._replace(step="sure") if first else Drop("unread", False))
        if phase == "waiting" and m.rules.drop_writes_pod:
            yield (
                f"touch_pod(p{pod}), unbound past its time",
                wrote_pod(m, sure, pod) if m.rules.touch_is_new else sure,
            )
        else:
            yield f"drop_reservation(p{pod}): it is {phase}", sure
    elif under_way.step == "unread":
        again = Drop("sure", True, put(s.api.reserved, pod, 0))
        yield f"drop_reservation(p{pod}): GPUNode is read again", with_drop(s, pod, again)
    else:
        yield f"drop_reservation(p{pod}): the PUT", reserved(m, with_drop(s, pod, None), under_way.plan)
        if s.left.losses:
            late = Late("drop_reservation", pod, under_way.fresh, under_way.plan)
            yield f"drop_reservation(p{pod}) is given up", lose(m, with_drop(s, pod, None), late)
