"""Small clusters as the watches would show them, without any of the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gaia_plugin.extender.choose import Chooser
from gaia_plugin.extender.demand import demand_of
from gaia_plugin.extender.habits import Habits
from gaia_plugin.extender.kinds import Machine
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.kube.gpunode import (
    Amounts,
    CardStatus,
    GpuNode,
    Link,
    Reservation,
    SliceStatus,
    SlotStatus,
    Spec,
    Status,
)
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.kube.pods import (
    Container,
    ContainerStatus,
    Pod,
    PodStatus,
    Resources,
    Running,
    State,
    Terminated,
)
from gaia_plugin.kube.pods import Spec as PodSpec
from gaia_plugin.kube.replica import Change
from gaia_plugin.placement.cluster import Ask, Options

MODEL = "NVIDIA A100-SXM4-80GB"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
BEAT = NOON.isoformat()


def amounts(units: int, cores: int) -> Amounts:
    return Amounts(units, cores)


def card(
    name: str, *, units: int = 64, model: str = MODEL, healthy: bool = True, links: Iterable[Link] = ()
) -> CardStatus:
    whole = Amounts(units, 100)
    return CardStatus(name, 0, model, healthy, whole, whole, links=tuple(links))


def reservation(uid: str, card: str, units: int, cores: int, container: str = "main", pod: str = "") -> Any:
    return Reservation(uid, container, card, Amounts(units, cores), pod=pod or f"default/{uid}", at=BEAT)


def slot(uid: str, card: str, units: int, cores: int, container: str = "main") -> SlotStatus:
    held = Amounts(units, cores)
    part = SliceStatus(card, held, held, held)
    return SlotStatus(uid, container, "Applied", (part,), held, "hard", 1)


def gpunode(
    name: str,
    cards: Sequence[CardStatus],
    *,
    slots: Sequence[SlotStatus] = (),
    reservations: Sequence[Reservation] = (),
    ready: bool = True,
    heartbeat: str = BEAT,
    version: int = 1,
    uid: str = "",
) -> GpuNode:
    return GpuNode(
        Metadata(name, uid or f"gpunode-{name}", version=str(version)),
        Spec(tuple(reservations)),
        Status(ready=ready, heartbeat=heartbeat, cards=tuple(cards), slots=tuple(slots)),
    )


def pod(
    uid: str,
    units: int | None = None,
    cores: int | None = None,
    *,
    node: str | None = None,
    phase: str = "Pending",
    deleted: bool = False,
    annotations: Mapping[str, str] | None = None,
    containers: Mapping[str, tuple[int | None, int | None]] | None = None,
    state: State | None = None,
    version: int = 1,
    restart_policy: str = "Always",
) -> Pod:
    wanted = containers or {"main": (units, cores)}
    made = tuple(Container(name, _resources(*each)) for name, each in wanted.items())
    statuses = tuple(ContainerStatus(name, state=state) for name in wanted) if state else None
    return Pod(
        Metadata(
            uid, uid, "default", str(version),
            deleted="2026-11-29T12:00:00Z" if deleted else None, annotations=dict(annotations or {}),
        ),
        PodSpec(made, node_name=node, restart_policy=restart_policy),
        PodStatus(phase, statuses),
    )  # fmt: skip


RUNNING = State(running=Running())
ENDED = State(terminated=Terminated())


def _resources(units: int | None, cores: int | None) -> Resources:
    both = {"gaia.io/vgpu-memory": units, "gaia.io/vgpu-cores": cores}
    limits = {key: str(value) for key, value in both.items() if value is not None}
    return Resources(limits, limits)


@dataclass
class World:
    """A snapshot with a clock of its own."""

    now: float = 1000.0
    wall: datetime = NOON
    options: Options | None = None
    snapshot: Snapshot = field(init=False)
    chooser: Chooser = field(init=False)
    habits: Habits = field(init=False)
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.snapshot = Snapshot(clock=lambda: self.now, wall=lambda: self.wall)
        self.chooser = Chooser(self.snapshot, self.options)
        self.habits = Habits(self.chooser.fleet)

    def machine(self, name: str, *, there: bool = True) -> None:
        kind = "added" if there else "gone"
        self.snapshot.machine_changed(Change(kind, Machine(Metadata(name, f"node-{name}")), None))  # type: ignore[arg-type]

    def node(self, name: str, cards: Sequence[CardStatus], **more: Any) -> GpuNode:
        self.machine(name)
        made = gpunode(name, cards, **more)
        self.snapshot.gpunode_changed(Change("changed", made, None))
        return made

    def pod(self, item: Pod) -> Pod:
        self.pods[item.uid] = item
        self.snapshot.pod_changed(Change("changed", item, None))
        return item

    def learn(self, *wishes: Pod, times: int = 1) -> None:
        """Let such pods be the usual mix, and price by it."""
        for wish in wishes:
            for _ in range(times):
                self.chooser.fleet.mix.see(Ask(demand_of(wish).kind))
        self.chooser.fleet.now().renew()

    def gone(self, item: Pod) -> None:
        self.pods.pop(item.uid, None)
        self.snapshot.pod_changed(Change("gone", item, item))
