"""What counts on a card: the one rule by which agent and extender agree on what is free. Pure.

A container counts with what its slot holds as soon as the node has that slot, and with what the
extender reserved for it until then; never with both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gaia_plugin.shares import NOTHING, Share


class Holder(NamedTuple):
    """A container: the UID of its pod and its name. A name alone decides nothing: pods come back."""

    uid: str
    container: str


Parts = Mapping[str, Share]
"""By card UUID."""


def counted(held: Mapping[Holder, Parts], reserved: Mapping[Holder, Parts]) -> dict[str, Share]:
    """Return what counts on each card, over all containers; cards of nobody are left out."""
    found: dict[str, Share] = {}
    waiting = {holder: parts for holder, parts in reserved.items() if holder not in held}
    for parts in (*held.values(), *waiting.values()):
        for card, share in parts.items():
            found[card] = found.get(card, NOTHING) + share
    return found
