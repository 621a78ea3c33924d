"""What the extender watches beside pods, and what it keeps of each object: memory counts at 5,000 nodes."""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from gaia_plugin.kube import gpunode
from gaia_plugin.kube.gpunode import Amounts, GpuNode, SliceStatus
from gaia_plugin.kube.objects import Metadata

_UNTOLD: Final = Amounts(0, 0)


class Machine(msgspec.Struct, frozen=True, gc=False):
    """A Node of the cluster: only that it is there."""

    metadata: Metadata


class Machines:
    """What a reflector needs to know of Nodes."""

    path = "/api/v1/nodes"
    type = Machine

    def keep(self, machine: Machine) -> Machine | None:
        """Drop the annotations."""
        force_setattr(machine.metadata, "annotations", None)
        force_setattr(machine.metadata, "name", sys.intern(machine.metadata.name))
        return machine


class SlimGpuNodes(gpunode.GpuNodes):
    """What a reflector needs to know of `GPUNode`s, with less of each."""

    def keep(self, node: GpuNode) -> GpuNode:
        """Keep what counts on cards, and one copy of each name: a link names both its cards again."""
        force_setattr(node.metadata, "annotations", None)
        force_setattr(node.metadata, "name", sys.intern(node.metadata.name))
        force_setattr(node.status, "conditions", ())
        force_setattr(node.status, "summary", gpunode.Summary())
        for card in node.status.cards:
            for field in ("uuid", "model"):
                force_setattr(card, field, sys.intern(getattr(card, field)))
            for link in card.links:
                force_setattr(link, "card", sys.intern(link.card))
                force_setattr(link, "level", sys.intern(link.level))
        for slot in node.status.slots:
            slices = tuple(
                SliceStatus(sys.intern(part.card), _UNTOLD, _UNTOLD, part.held) for part in slot.slices
            )
            force_setattr(slot, "slices", slices)
            force_setattr(slot, "desired", None)
        for one in node.spec.reservations:
            force_setattr(one, "card", sys.intern(one.card))
        return node
