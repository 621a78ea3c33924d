"""What the parts of a pod agent ask of the world; tests put small things of their own behind these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gaia_plugin.agent.pods.identity import Entry
from gaia_plugin.errors import Refusal
from gaia_plugin.kube.pods import Pod
from gaia_plugin.ledger import SlotRecord


class Untold(Refusal):
    """The cluster cannot be told of what was booked: no answer to what was asked, and no want of room."""


class Specs(Protocol):
    """The CDI specs of this node's slots. Called in the thread of ledger and pages."""

    def write(self, record: SlotRecord, names: Mapping[str, bool]) -> None:
        """Make sure of a spec of each name: all that the slot's container gets where True, else a part.

        Raises:
            OSError, Unusable: it cannot be written.
        """

    def remove(self, names: Iterable[str]) -> None:
        """Take names away, those that are not there included."""

    def listed(self) -> Mapping[str, str]:
        """Return the UID that each spec of ours was made for, by name."""

    def cards(self, name: str, owner: str) -> list[str]:
        """Return the cards that a name gives, if its spec is there and was made for this UID."""


class Checkpoint(Protocol):
    """The kubelet's record of devices."""

    async def entries(self) -> Sequence[Entry]:
        """Return what it says now.

        Raises:
            Refusal: it cannot be read.
        """


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node's status says of its machine; empty: nothing."""

    runtime: str = ""
    boot: str = ""
    machine: str = ""


class Server(Protocol):
    """What is asked of the API server and written to it, beside the pods that are watched.

    Every method may raise `ApiError`.
    """

    async def facts(self) -> NodeFacts:
        """Return what this node says of its machine."""

    async def uids_now(self) -> set[str]:
        """Return the UIDs of this node's pods, from the server itself and no cache of anybody's."""

    async def annotate(self, pod: Pod, placement: str) -> Pod | None:
        """Write where a pod was placed; None where it is another pod, or gone."""

    async def evict(self, pod: Pod, sentence: str, reason: str = "NoRoom") -> None:
        """Delete a pod, if it is still the same, then say on it why it could not stay."""

    async def tell(
        self,
        pod: Pod,
        reason: str,
        sentence: str,
        *,
        kind: Literal["Normal", "Warning"] = "Warning",
        action: str = "Delete",
    ) -> None:
        """Say something on a pod; a failure is logged, never raised."""
