"""Writes back where pods were placed, so that everyone sees what the ledger has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.ports import Server
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.placement import Ignored, Placement, parse, placement_key, render
from gaia_plugin.kube.pods import Pod
from gaia_plugin.placement import Slice
from gaia_plugin.shares import Share

log = structlog.get_logger(__name__)

_LONGEST_PAUSE: Final = 60.0

Given = Mapping[str, Mapping[str, Share]]
"""By container and card."""


def wanted(pod: Pod, given: Given, *, node: str, domain: str) -> str | None:
    """Return the annotation that a pod should have; None when it says so already.

    What it says of containers that have no slot yet stays, if it was made for this pod and node.
    """
    text = pod.annotations.get(placement_key(domain))
    known = Ignored(None) if text is None else parse(text)
    kept: Mapping[str, tuple[Slice, ...]] = {}
    if isinstance(known, Placement) and (known.uid, known.node) == (pod.uid, node):
        kept = known.containers
    mine = {
        container: tuple(Slice(card, share) for card, share in sorted(cards.items()))
        for container, cards in given.items()
    }
    new = Placement(pod.uid, node, {**kept, **mine})
    return None if new == known else render(new)


@dataclass
class _Pause:
    until: float = 0.0
    length: float = 1.0


@dataclass
class Publisher:
    """Compares annotations with the ledger and writes those that differ.

    Args:
        sight: the pods.
        server: the API server.
        node: name of this node.
        domain: of annotations.
        clock: monotonic seconds.
    """

    sight: Sight
    server: Server
    node: str
    domain: str
    clock: Callable[[], float] = time.monotonic
    _pauses: dict[str, _Pause] = field(default_factory=dict)

    async def publish(self, placements: Mapping[str, Given]) -> bool:
        """Write what differs from `placements` (by pod UID). What fails is tried again, ever less often.

        Return False when a pod was changed by others meanwhile, so that another look is due at once.
        """
        settled = True
        for uid in set(self._pauses) - set(placements):
            del self._pauses[uid]
        for uid, given in placements.items():
            pod = self.sight.pod(uid)
            alive = pod is not None and any(
                self.sight.life(Owner(uid, container)) is Life.LIVING for container in given
            )
            pause = self._pauses.get(uid)
            if pod is None or not alive or (pause is not None and self.clock() < pause.until):
                continue
            text = wanted(pod, given, node=self.node, domain=self.domain)
            if text is not None:
                settled &= await self._write(pod, text)
        return settled

    async def _write(self, pod: Pod, text: str) -> bool:
        try:
            written = await self.server.annotate(pod, text)
        except ApiError as error:
            pause = self._pauses.setdefault(pod.uid, _Pause())
            pause.until = self.clock() + pause.length
            pause.length = min(_LONGEST_PAUSE, 2 * pause.length)
            log.warning("placement not written", pod=pod.title, why=str(error))
            return True
        self._pauses.pop(pod.uid, None)
        if written is not None:
            self.sight.observe(written)
            log.info("placement written", pod=pod.title)
        return written is not None
