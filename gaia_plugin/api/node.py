"""What the HTTP part asks of an agent. The agent implements it; tests put a small fake behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gaia_plugin.api import models


class Node(Protocol):
    """One node with its cards and slots. Every method may raise `gaia_plugin.errors.Refusal`."""

    async def health(self) -> models.Health:
        """Return who this is."""

    async def cards(self) -> tuple[models.CardView, ...]:
        """Return the cards."""

    async def slots(self) -> tuple[models.Slot, ...]:
        """Return all slots."""

    async def slot(self, slot: str) -> models.Slot:
        """Return one slot."""

    async def make(self, wish: models.NewSlot) -> models.MadeSlot:
        """Make a slot."""

    async def resize(self, slot: str, wish: models.Resize, generation: int | None) -> models.Resized:
        """Set a slot's amounts, if `generation` is None or still the slot's."""

    async def release(self, slot: str) -> models.Slot:
        """Begin a slot's release and return it as it stands."""

    async def own(self, slot: str, owner: models.Owner) -> models.Slot:
        """Give the slot to a process."""

    async def fit(self, wishes: Sequence[models.NewSlot]) -> tuple[models.Fit, ...]:
        """Tell for each wish whether it could start now."""

    async def explain(self, pod: str) -> models.Explained:
        """Tell of a pod (namespace/name) what it asks for, what it has, and why it has no more."""

    async def wait_for_change(self, slot: str, timeout: float) -> None:
        """Return when the slot may have changed, at the latest after `timeout` seconds."""
