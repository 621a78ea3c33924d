"""`gaia nodes`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import typer

from gaia_plugin.api.models import Amounts
from gaia_plugin.commands.common import JsonOption, console, memory, print_json, table_of

if TYPE_CHECKING:
    from gaia_plugin.kube.gpunode import GpuNode
    from gaia_plugin.shares import Share

SILENT_SECONDS: Final = 90.0
"""An agent writes every half minute; one that has not for so long is taken to be away."""

State = Literal["ready", "not ready", "silent"]


class NodeCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card of a node. Bytes and cores; `free` is what neither slots nor reservations count on."""

    uuid: str
    index: int
    name: str
    healthy: bool
    total: Amounts
    free: Amounts
    trouble: str


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as its GPUNode tells it. `free` counts healthy cards only, `largest` is one card's.

    `state` is `silent` where the heartbeat is more than 90 s old; `heartbeat_age` is in seconds, null where
    none was ever written. `slots` and `reservations` are how many there are, the latter without those of
    containers that have their slot. `conditions` are the sentences of conditions that are true.
    """

    name: str
    state: State
    heartbeat: str
    heartbeat_age: float | None
    agent_version: str
    total: Amounts
    free: Amounts
    largest: Amounts | None
    cards: tuple[NodeCard, ...]
    slots: int
    reservations: int
    conditions: tuple[str, ...]


def nodes(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="How to reach the cluster. Default: as kubectl finds it, or the pod's account.",
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Which context of that file.")] = None,
    domain: Annotated[
        str, typer.Option(metavar="DOMAIN", envvar="GAIA_DOMAIN", help="Domain of Gaia's resources.")
    ] = "gaia.io",
    json: JsonOption = False,
) -> None:
    """List the nodes that share cards, and what is free on each.

    What is free is what neither slots nor reservations count on, on healthy cards; the largest free slice
    is one card's. An agent that has not written for 90 seconds is shown as silent.
    """
    now = datetime.now(UTC)
    found = [view(node, now) for node in asyncio.run(_listed(kubeconfig, context, domain))]
    found.sort(key=lambda each: each.name)
    if json:
        print_json(found)
    elif not found:
        sys.stdout.write("No node of this cluster shares cards: no agent has written a GPUNode.\n")
    else:
        _print(found)


async def _listed(kubeconfig: Path | None, context: str | None, domain: str) -> list[GpuNode]:
    """Return the GPUNodes of a cluster.

    Raises:
        Unusable: the cluster cannot be asked, or knows no GPUNodes.
    """
    from gaia_plugin.errors import Unusable
    from gaia_plugin.kube import gpunode
    from gaia_plugin.kube.client import Api
    from gaia_plugin.kube.errors import ApiError
    from gaia_plugin.kube.nodes import NotInstalled

    api = await Api.connect(kubeconfig, context)
    try:
        found: list[GpuNode] = []
        async for page in api.list_pages(gpunode.path(domain=domain)):
            items = msgspec.json.decode(page, type=_Page).items or ()
            found += [gpunode.read(item) for item in items]
        return found
    except ApiError as error:
        raise Unusable(str(NotInstalled(domain) if error.missing else error)) from error
    except msgspec.DecodeError as error:
        raise Unusable(
            f"The Kubernetes API server answered with something else than a list: {error}"
        ) from error
    finally:
        await api.close()


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def view(node: GpuNode, now: datetime) -> NodeView:
    """Return a node as it is shown. Pure."""
    from gaia_plugin.counted import Holder
    from gaia_plugin.kube.gpunode import free
    from gaia_plugin.placement import CardState, largest_free
    from gaia_plugin.shares import NOTHING

    status, left = node.status, free(node)
    states = [
        CardState(card.uuid, card.model, card.capacity.share, left[card.uuid], card.healthy)
        for card in status.cards
    ]
    largest = largest_free(states)
    holders = {slot.holder for slot in status.slots}
    waiting = {Holder(each.uid, each.container) for each in node.spec.reservations} - holders
    age = age_of(status.heartbeat, now)
    return NodeView(
        name=node.metadata.name,
        state=_state(status.ready, age),
        heartbeat=status.heartbeat,
        heartbeat_age=age,
        agent_version=status.agent_version,
        total=_amounts(_sum(card.capacity for card in states)),
        free=_amounts(_sum(card.free.most(NOTHING) for card in states if card.healthy)),
        largest=None if largest is None else _amounts(largest),
        cards=tuple(
            NodeCard(
                uuid=card.uuid,
                index=card.index,
                name=card.model,
                healthy=card.healthy,
                total=_amounts(card.capacity.share),
                free=_amounts(left[card.uuid].most(NOTHING) if card.healthy else NOTHING),
                trouble=card.reason,
            )
            for card in sorted(status.cards, key=lambda card: card.index)
        ),
        slots=len(status.slots),
        reservations=len(waiting),
        conditions=tuple(
            each.message or each.reason
            for each in status.conditions
            if each.status == "True" and each.type != "Ready"
        ),
    )


def age_of(heartbeat: str, now: datetime) -> float | None:
    """Return the seconds since an agent wrote; None: it never did, or nothing that is a time."""
    try:
        at = datetime.fromisoformat(heartbeat)
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    # clocks of two machines differ a little
    return max(0.0, round((now - at).total_seconds(), 1))


def _state(ready: bool, age: float | None) -> State:
    if not ready:
        return "not ready"
    return "silent" if age is None or age > SILENT_SECONDS else "ready"


def _sum(shares: Iterable[Share]) -> Share:
    from gaia_plugin.shares import NOTHING

    return sum(shares, NOTHING)


def _amounts(share: Share) -> Amounts:
    from gaia_plugin.units import MEMORY_UNIT

    return Amounts(memory=share.units * MEMORY_UNIT, cores=share.cores)


_COLUMNS: Final = (
    *("node", "state", "cards", "memory free", "compute free", "largest free slice", "slots", "reserved"),
    *("heard", "agent"),
)


def _print(found: Sequence[NodeView]) -> None:
    screen = console()
    screen.print(table_of("Nodes that share cards", _COLUMNS, [_row(each) for each in found]))
    for node in found:
        said = [
            f"card {card.index}: {card.trouble}" for card in node.cards if not card.healthy and card.trouble
        ]
        for sentence in (*node.conditions, *said):
            screen.print(f"{node.name}: {sentence}", markup=False)


def _row(node: NodeView) -> tuple[str, ...]:
    largest = node.largest
    return (
        node.name,
        node.state,
        str(len(node.cards)),
        f"{memory(node.free.memory)} / {memory(node.total.memory)}",
        f"{node.free.cores} / {node.total.cores} %",
        "none" if largest is None else f"{memory(largest.memory)} and {largest.cores} %",
        str(node.slots),
        str(node.reservations),
        "never" if node.heartbeat_age is None else f"{node.heartbeat_age:.0f} s ago",
        node.agent_version,
    )
