"""Is the node that the agent was told the machine that it runs on?

With the name or the cluster of another one every pod of this machine would look gone, and its slices would
be given back under it. So the node is compared with the machine before anything is entered or released.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from gaia_plugin.agent.pods.ports import NodeFacts, Server
from gaia_plugin.errors import Fatal
from gaia_plugin.kube.errors import ApiError

log = structlog.get_logger(__name__)

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_LONGEST_PAUSE: Final = 15.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What tells this machine from others; empty: it cannot be read, so it is not compared."""

    boot: str = ""
    identity: str = ""

    @classmethod
    def here(cls, root: Path, boot: Path = _BOOT) -> Machine:
        """Return what this machine says of itself; `root` is where the node's root is seen."""
        return cls(_read(boot), _read(root / "etc/machine-id"))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip().lower()
    except (OSError, UnicodeDecodeError):
        return ""


def contradiction(name: str, facts: NodeFacts, machine: Machine) -> str:
    """Return why the node cannot be this machine, or what is not up to date yet; empty: it can. Pure.

    After a reboot the kubelet still has to report the new boot: then it is only a matter of time.
    """
    if _differ(facts.machine, machine.identity):
        return (
            f"The node {name} is not this machine: its machine ID is {facts.machine}, and here it is "
            f"{machine.identity}. Set GAIA_NODE_NAME, or the kubeconfig, to what this machine is."
        )
    if _differ(facts.boot, machine.boot):
        return (
            f"The node {name} reports another boot than this machine's. After a reboot its kubelet will "
            "report the new one soon; else GAIA_NODE_NAME or the kubeconfig is another machine's."
        )
    return ""


def _differ(reported: str, here: str) -> bool:
    return bool(reported and here) and reported.strip().lower() != here


@dataclass
class Confirmation:
    """Asks for the node until it is known to be this machine.

    Args:
        server: the API server.
        name: of the node.
        machine: this one.
        clock: monotonic seconds.
    """

    server: Server
    name: str
    machine: Machine
    clock: Callable[[], float] = time.monotonic
    why: str = ""
    """The sentence for people while it is not known; empty before the first look."""
    _done: bool = False
    _pause: float = 1.0
    _not_before: float = field(default=float("-inf"))

    async def done(self) -> bool:
        """Tell whether the node is this machine, asking ever less often; what is new is logged.

        Raises:
            Fatal: the cluster has no such node.
        """
        if self._done or self.clock() < self._not_before:
            return self._done
        why = await self._look()
        if why and why != self.why:
            log.error("nothing is released", why=why)
        self.why, self._done = why, not why
        self._not_before = self.clock() + self._pause
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)
        return self._done

    async def _look(self) -> str:
        try:
            facts = await self.server.facts()
        except ApiError as error:
            if error.missing:
                raise Fatal(
                    f"The cluster has no node {self.name!r}. Set GAIA_NODE_NAME to this node's name in "
                    "`kubectl get nodes`, and check that the kubeconfig is this cluster's. "
                    "Nothing that runs here was touched."
                ) from error
            return f"The API server does not show the node {self.name}: {error}"
        return contradiction(self.name, facts, self.machine)
