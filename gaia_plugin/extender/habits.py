"""The usual mix of requests, learnt from the pods that come and go, and the prices that follow from it.

Prices take up to 0.2 s of CPU. They are made in a thread, while questions are answered by those before.
"""

from __future__ import annotations

import asyncio

import structlog

from gaia_plugin.errors import Refusal
from gaia_plugin.extender.demand import demand_or_refusal
from gaia_plugin.extender.fleet import KeptFleet
from gaia_plugin.kube.pods import DOMAIN, Pod
from gaia_plugin.kube.replica import Change
from gaia_plugin.placement.cluster import Ask

log = structlog.get_logger(__name__)


class Habits:
    """Learns from pods.

    Each pod is counted once, when it is first seen, also one that is bound already: after a start the pods
    that run are the mix. One that leaves counts once, if it was bound: another gave no room back.

    Args:
        fleet: that goes by the mix.
        domain: of resources and annotations.
    """

    def __init__(self, fleet: KeptFleet, domain: str = DOMAIN) -> None:
        self._fleet = fleet
        self._domain = domain
        self._here: dict[str, bool] = {}
        """By UID, whether a pod that was seen still counts as here; kept until it is gone."""
        self.due = asyncio.Event()
        """Whether the mix has changed so much that prices are to be made anew."""

    def pod_changed(self, change: Change[Pod]) -> None:
        """Count a pod that is new, or has left."""
        pod, gone = change.item, change.kind == "gone"
        left, here = gone or pod.terminal, self._here.get(pod.uid)
        if here is None:
            self._here[pod.uid] = not left and self._learn(pod)
        elif here and left:
            self._here[pod.uid] = False
            if pod.spec.node_name:
                self._fleet.mix.end()
        if gone:
            self._here.pop(pod.uid, None)

    def _learn(self, pod: Pod) -> bool:
        demand = demand_or_refusal(pod, self._domain)
        if isinstance(demand, Refusal) or not demand.kind:
            return False
        if self._fleet.mix.see(Ask(demand.kind)):
            self.due.set()
        return True

    async def renew(self) -> None:
        """Make prices from the mix as it is now, and go by them."""
        self.due.clear()
        fleet = self._fleet.now()
        fleet.adopt(await asyncio.to_thread(fleet.prepare()))

    async def run(self) -> None:
        """Renew whenever it is due, until cancelled."""
        while True:
            await self.due.wait()
            try:
                await self.renew()
            except Exception:
                log.exception("no new prices; those before hold")
