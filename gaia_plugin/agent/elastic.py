"""How a card's time is divided among its slots, and how a measured error is trimmed away. Pure.

The rule is GaiaGPU's (Gu et al., 2018), with time in place of tokens: an elastic slot has what it is
guaranteed, and what the others leave idle is divided among those that want more, in proportion to
their guarantees. Nothing running is stopped for it: a slot that wants its own back gets it because the
rates of those that borrowed fall first.

All figures are ppm: millionths of one card's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

WHOLE: Final = 1_000_000
MEASURED: Final = WHOLE - 1
"""The highest rate of a hard slot that shares its card. From `WHOLE` on the library measures elastic
slots only, and what is not measured cannot be taken back."""

GAIN: Final = 0.12
"""Power of the error that one measurement of 200 ms takes away (docs/design/compute-shares.md). Small:
figures are half a second old, and where short kernels wait for others' turns what a slot gets rises with
up to the third power of its rate."""
PERIOD: Final = 0.2
WORST: Final = 2.0
"""No measurement counts as a larger error than by this factor."""
ALONE_GAIN: Final = 0.5
"""The same for one measurement of a slot that is alone: a second and more, and nothing is late in it."""
ALONE_DOUBT: Final = 2
"""Standard errors by which its measure may be wrong."""
ALONE_BAND: Final = 20_000
"""Ppm by which a slot that is alone may be off before it is corrected: its own counters are exact for nearly
all programs, and drivers tell whole percents."""
ALONE_NEAR: Final = 10_000
"""The same for one that is being corrected: half of it, so that nothing rests at the edge."""
ALONE_MOST: Final = 1.5
"""No slot that is alone is raised by more than this factor, whatever is measured."""
LEAST_PART: Final = 2
"""A slot's rate never falls below its share divided by this, whatever is measured: a driver that gives
wrong figures can halve a slot's share but starve nobody."""
SMALLEST_CHANGE: Final = 1_000
"""A rate is not stored anew for less than a tenth of a percent."""

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Tenant:
    """A slot on one card.

    Args:
        elastic: False for a hard slot, whose share is its guarantee.
        guarantee: what it is never denied.
        ceiling: what it never exceeds; at least `guarantee`.
        demand: what it would use if it could; 0 while idle, `WHOLE` when it is held back.
    """

    elastic: bool
    guarantee: int
    ceiling: int
    demand: int

    @property
    def need(self) -> int:
        """Return the part of its guarantee that it uses; the rest is lent."""
        return min(self.guarantee, self.demand)

    @property
    def wants_more(self) -> bool:
        """Tell whether it may and would use more than its guarantee."""
        return self.elastic and self.demand > self.guarantee


def shares(tenants: Sequence[Tenant], card: int = WHOLE) -> list[int]:
    """Return the share of each tenant, in their order.

    A guarantee is always granted, to an idle slot as well: so it starts at once, and what was lent
    from it comes back in the next step. What the slots need and what is lent add up to at most `card`
    (or to the needs alone, where these are more).
    """
    spare = max(0, card - sum(tenant.need for tenant in tenants))
    extra = [0] * len(tenants)
    wanting = [index for index, tenant in enumerate(tenants) if tenant.wants_more]
    spare -= _pour(spare, tenants, extra, {i: min(tenants[i].demand, tenants[i].ceiling) for i in wanting})
    # what nobody is known to want goes to those at work: a sudden burst needs no step to get it
    busy = [index for index, tenant in enumerate(tenants) if tenant.elastic and tenant.demand]
    _pour(spare, tenants, extra, {i: tenants[i].ceiling for i in busy})
    return [
        max(tenant.guarantee, tenant.need + more) if tenant.elastic else tenant.guarantee
        for tenant, more in zip(tenants, extra, strict=True)
    ]


def _pour(spare: int, tenants: Sequence[Tenant], extra: list[int], caps: Mapping[int, int]) -> int:
    """Divide `spare` by guarantees, up to `caps` in all; add it to `extra` and return what was given."""
    given = 0
    open_ = {index: cap for index, cap in caps.items() if cap > tenants[index].need + extra[index]}
    while open_ and spare > given:
        weight = sum(tenants[index].guarantee for index in open_)
        left = spare - given
        if weight <= 0 or left < weight // WHOLE + 1:
            break
        room = {index: cap - tenants[index].need - extra[index] for index, cap in open_.items()}
        parts = {index: left * tenants[index].guarantee // weight for index in open_}
        full = [index for index in open_ if parts[index] >= room[index]]
        # those that are full take their room only, and the rest is divided among the others
        for index in full or list(open_):
            take = min(parts[index], room[index])
            extra[index] += take
            given += take
            if full:
                del open_[index]
        if not full:
            break
    return given


def trimmed(trim: float, share: int, measured: int, elapsed: float) -> float:
    """Return the correction factor of a rate after a measurement of `elapsed` seconds.

    The rate that goes with the share and its company (`turns.stretches`) is the first guess and is there
    at once; this is for what a card does differently.
    """
    wrong = min(WORST, max(1 / WORST, share / max(measured, 1)))
    return float(trim * wrong ** (GAIN * min(1.0, elapsed / PERIOD)))


def trimmed_alone(trim: float, share: int, least: int, most: int, wants_more: bool) -> float:
    """Return the correction factor of a rate for a slot that is alone on its card.

    Outside the band it goes towards the share, inside only back to 1, and only while the measure says that
    the correction is too large; so it neither swings about an edge of the band nor stays without a reason.

    Args:
        trim: the factor until now.
        share: what the slot is to get.
        least: what it got at least, chance allowed for.
        most: what it got at most, chance allowed for.
        wants_more: whether its launches waited all the time. One that wants no more is not raised.
    """
    over, under = (ALONE_NEAR if by else ALONE_BAND for by in (trim < 1, trim > 1))
    down = float(max(1 / WORST, share / max(least, 1)) ** ALONE_GAIN)
    up = float(min(WORST, share / max(most, 1)) ** ALONE_GAIN)
    if least > share + over:
        return trim * down
    if most < share - under and wants_more:
        return min(ALONE_MOST, trim * up)
    if trim < 1 and most < share:
        return min(1.0, trim * up)
    if trim > 1 and least > share:
        return max(1.0, trim * down)
    return trim


def faded(trim: float, elapsed: float) -> float:
    """Return a correction that nothing measured supports any more: half of it after a second."""
    return float(trim ** (0.5 ** min(elapsed, 60.0)))


def bounded(share: int, rate: float, most: int = MEASURED) -> int:
    """Return the rate for a share, within what a rate in force may be."""
    return max(share // LEAST_PART, min(round(rate), most))


def in_order(
    before: Mapping[_Key, int], after: Mapping[_Key, int]
) -> tuple[list[tuple[_Key, int]], list[tuple[_Key, int]]]:
    """Return the rates to store: those that fall, and those that rise, to be stored after the first.

    So at no instant is more promised than before and after.
    """
    changed = [(key, rate) for key, rate in after.items() if _worth(before.get(key), rate)]
    down = [(key, rate) for key, rate in changed if rate < before.get(key, 0)]
    up = [(key, rate) for key, rate in changed if rate >= before.get(key, 0)]
    return down, up


def _worth(before: int | None, after: int) -> bool:
    return before is None or abs(after - before) >= SMALLEST_CHANGE or (after != before and after >= MEASURED)
