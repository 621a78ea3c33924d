"""From what a placement costs to a step: small differences in cost are noise, and best fit decides there."""

from __future__ import annotations

from math import ceil, log
from typing import Final

import numpy as np

from gaia_plugin.placement.cluster.classes import Ints
from gaia_plugin.placement.cluster.worth import MICRO

STEPS: Final = 100

# A cost of c cards scores 100 / (1 + e^c), cut to whole points, as fragmentation gradient descent does
# (Weng et al., USENIX ATC 2023): 50 for what costs nothing, a point for each 0.04 cards from there on.
# These are the least costs, in millionths of a card, that score less than 50, 49, ... points.
_BOUNDS: Final[Ints] = np.array(
    [1, *(ceil(MICRO * log(STEPS / score - 1)) for score in range(STEPS // 2 - 1, 0, -1))], np.int64
)


def steps(cost: Ints) -> Ints:
    """Return the step of each cost: 0 for none at all, 50 at most; less is better."""
    found: Ints = np.searchsorted(_BOUNDS, cost, side="right").astype(np.int64)
    return found
