"""The pods of this node as the API server shows them, and which of them are known to be gone."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.kube.pods import CONFIG_HASH, Pod, container_ended
from gaia_plugin.kube.reflector import Reflector
from gaia_plugin.kube.replica import Change

_MOST_GONE: Final = 10_000


class Sight:
    """What is seen of pods. A pod that was never seen is not gone: it may not have arrived."""

    def __init__(self, reflector: Reflector[Pod]) -> None:
        self._reflector = reflector
        self._gone: OrderedDict[str, None] = OrderedDict()
        self.changed = asyncio.Event()
        """Set at every change; whoever waits for it clears it."""
        self.end = reflector.subscribe(self._told)

    @property
    def synced(self) -> bool:
        """Tell whether the API server has shown everything once."""
        return self._reflector.synced.is_set()

    @property
    def trouble(self) -> str:
        """Return why what is seen may be old; empty while the watch is up."""
        trouble = self._reflector.trouble
        return "" if trouble is None else str(trouble)

    async def wait_synced(self) -> None:
        """Return when the API server has shown everything once."""
        await self._reflector.synced.wait()

    def pods(self) -> list[Pod]:
        """Return the pods that are there."""
        return list(self._reflector.store.values())

    def pod(self, uid: str) -> Pod | None:
        """Return a pod by its UID."""
        return self._reflector.store.get(uid)

    def named(self, title: str) -> Pod | None:
        """Return the pod of this namespace/name; where there are two, the one that is not going."""
        found = [pod for pod in self.pods() if pod.title == title]
        return min(found, key=lambda pod: (pod.terminating, pod.terminal), default=None)

    def mirror(self, uid: str) -> Pod | None:
        """Return the mirror of the static pod that its kubelet knows by this UID."""
        return next((pod for pod in self.pods() if pod.annotations.get(CONFIG_HASH) == uid), None)

    def containers(self, uid: str) -> dict[str, str]:
        """Return names of a pod's containers by the runtime's IDs, as far as the API server shows them."""
        pod = self.pod(uid)
        if pod is None:
            return {}
        status = pod.status
        listed = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        return {each.container_id.rpartition("/")[2]: each.name for each in listed if each.container_id}

    def life(self, owner: Owner) -> Life:
        """Return what is known of a container."""
        pod = self.pod(owner.uid)
        if pod is not None:
            return Life.ENDED if container_ended(pod, owner.container) else Life.LIVING
        return Life.ENDED if owner.uid in self._gone else Life.UNKNOWN

    async def wait(self, uid: str, seconds: float) -> Pod | None:
        """Return a pod as soon as it is seen; None: not in time, or it is gone."""
        return await self._reflector.wait_for(uid, max(0.0, seconds))

    def observe(self, pod: Pod) -> None:
        """Take in what a write of our own was answered with."""
        self._reflector.observe(pod)

    def gone(self, uid: str) -> None:
        """Note that the API server itself says that this pod is not there. A UID never comes back."""
        self._gone[uid] = None
        self._gone.move_to_end(uid)
        while len(self._gone) > _MOST_GONE:
            self._gone.popitem(last=False)

    def _told(self, change: Change[Pod]) -> None:
        self.changed.set()
        if change.kind == "gone":
            self.gone(change.item.uid)
        else:
            # a server restored from a backup shows pods again that it said were gone
            self._gone.pop(change.item.uid, None)
