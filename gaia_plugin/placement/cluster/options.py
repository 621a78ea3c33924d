"""What an operator may choose, and the constants of the rule.

The constants were chosen on seeds 42 and 43 of the benchmark and never on the seeds it reports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Rule(StrEnum):
    """Which node is best."""

    PRICED = "priced"
    """Where the usual mix of requests loses least room."""
    BINPACK = "binpack"
    """The fullest that fits, to keep nodes empty."""
    SPREAD = "spread"
    """The emptiest, to keep tenants apart."""


@dataclass(frozen=True, slots=True)
class Options:
    """The constants of the priced rule.

    Two of them have a second value for a cluster where pods leave as fast as they come. Where it only fills
    up, what is free has to serve the rest of the demand once, and in the end all of it is used. Where pods
    leave, what is free is taken again and again, and a whole card or a whole set that was broken seldom
    comes back: it is worth more.

    Args:
        amount: part of the bare free amount, against its priced worth, in a card's worth.
        opening, opening_churning: what breaking a whole card costs on top, in cards.
        popularity: the commonest kinds that make up this part of the mix are looked at.
        sets_kept, sets_kept_churning: whole sets of cards are left alone while they are at most this
            multiple of the demand.
        models_kept: the same for models that pickier requests need.
    """

    rule: Rule = Rule.PRICED
    amount: float = 0.4
    opening: float = 0.03
    opening_churning: float = 0.6
    popularity: float = 0.95
    sets_kept: float = 1.5
    sets_kept_churning: float = 30.0
    models_kept: float = 2.0

    def under(self, churn: float) -> Options:
        """Return the constants for a churn from 0 (only fills up) to 1 (as many pods leave as come)."""
        return replace(
            self,
            opening=self.opening + churn * (self.opening_churning - self.opening),
            sets_kept=self.sets_kept + churn * (self.sets_kept_churning - self.sets_kept),
        )
