"""The answers to kube-scheduler: bytes in, bytes out, and whatever happens an answer that it understands."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gaia_plugin.errors import Refusal
from gaia_plugin.extender import wire
from gaia_plugin.extender.binding import Binder, NotBound
from gaia_plugin.extender.choose import Chooser, scores
from gaia_plugin.extender.demand import demand_of
from gaia_plugin.extender.preempt import Preemptor
from gaia_plugin.extender.retry import Refusals
from gaia_plugin.extender.snapshot import Snapshot

log = structlog.get_logger(__name__)

_OURS = "Gaia's extender has failed at this pod; its log says where. It is tried again."
NOT_YET = "Gaia's extender is still reading the cluster; it is tried again."


class Service:
    """Filter, prioritize, preempt and bind over one snapshot.

    Args:
        snapshot: of the cluster.
        chooser: of nodes.
        binder: of pods.
        synced: tells whether the snapshot is whole.
        refusals: told of every pod that found a node, or none.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        chooser: Chooser,
        binder: Binder,
        synced: Callable[[], bool],
        refusals: Refusals | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._chooser = chooser
        self._binder = binder
        self.synced = synced
        self._preemptor = Preemptor(snapshot)
        self._refusals = refusals or Refusals()
        self.last_asked: float | None = None
        """Monotonic second of the last question of kube-scheduler's."""

    def filter(self, body: bytes) -> bytes:
        """Answer which node takes a pod."""
        self._note()
        try:
            if not self.synced():
                return wire.filtered([], {}, {}, error=NOT_YET)
            offer = wire.read_offer(body, self._snapshot.domain)
            try:
                demand = demand_of(offer.pod, self._snapshot.domain)
            except Refusal as refusal:
                # no node of any size could take it: nobody need be evicted, and nothing tried again
                hopeless = dict.fromkeys(offer.names, refusal.sentence)
                return wire.filtered([], {}, hopeless, whole=offer.whole)
            if not demand.kind:
                return wire.filtered(offer.names, {}, {}, whole=offer.whole)
            choice = self._chooser.choose(demand, offer.names)
            self._refusals.note(demand.uid, refused=choice.node is None)
            names = [] if choice.node is None else [choice.node]
            return wire.filtered(names, choice.failed, choice.hopeless, whole=offer.whole)
        except wire.Unreadable as error:
            return wire.filtered([], {}, {}, error=f"Gaia's extender was asked what it cannot read: {error}")
        except Exception:
            log.exception("filter failed")
            return wire.filtered([], {}, {}, error=_OURS)

    def prioritize(self, body: bytes) -> bytes:
        """Answer how much each of several nodes is liked; asked only where filter is not ours alone."""
        self._note()
        try:
            offer = wire.read_offer(body, self._snapshot.domain)
            demand = demand_of(offer.pod, self._snapshot.domain)
            return wire.prioritized(scores(self._chooser, demand, offer.names) if demand.kind else {})
        except (Refusal, wire.Unreadable):
            return wire.prioritized({})
        except Exception:
            log.exception("prioritize failed")
            return wire.prioritized({})

    def preempt(self, body: bytes) -> bytes:
        """Answer on which nodes the eviction of pods makes room."""
        self._note()
        try:
            asked = wire.read_preemption(body, self._snapshot.domain)
            if not self.synced():
                return wire.preempted({})
            demand = demand_of(asked.pod, self._snapshot.domain)
            if not demand.kind:
                return wire.preempted(asked.victims)
            return wire.preempted(self._preemptor.review(demand, asked.victims))
        except (Refusal, wire.Unreadable):
            return wire.preempted({})
        except Exception:
            log.exception("preempt failed")
            return wire.preempted({})

    async def bind(self, body: bytes) -> bytes:
        """Bind a pod."""
        self._note()
        try:
            asked = wire.read_binding(body)
            if not self.synced():
                return wire.bound(NOT_YET)
            await self._binder.bind_pod(asked.namespace, asked.name, asked.uid, asked.node)
        except (NotBound, wire.Unreadable) as error:
            log.info("not bound", why=str(error))
            return wire.bound(f"Gaia: {error}")
        except Exception:
            log.exception("bind failed")
            return wire.bound(_OURS)
        return wire.bound()

    def active(self, seconds: float = 600.0) -> bool:
        """Tell whether kube-scheduler has asked this replica lately."""
        return self.last_asked is not None and self._snapshot.clock() - self.last_asked < seconds

    def _note(self) -> None:
        self.last_asked = self._snapshot.clock()
