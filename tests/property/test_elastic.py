"""The division of a card's time, for any tenants: what is promised is kept, and no more is promised."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.agent import elastic
from gaia_plugin.agent.elastic import MEASURED, WHOLE, Tenant

CORE = 10_000


@st.composite
def tenants(draw: st.DrawFn) -> list[Tenant]:
    """Slots whose guarantees add up to at most the card, as the ledger sees to it."""
    left, made = 100, []
    while left and len(made) < 8 and (not made or draw(st.booleans())):
        cores = draw(st.integers(1, left))
        left -= cores
        mode = draw(st.booleans())
        ceiling = draw(st.integers(cores, 100)) if mode else cores
        demand = draw(st.sampled_from([0, 1, cores * CORE, WHOLE]) | st.integers(0, WHOLE))
        made.append(Tenant(mode, cores * CORE, ceiling * CORE, demand))
    return made


CARDS = st.integers(1, 100).map(lambda percent: percent * CORE)


def promised(tenant: Tenant, share: int) -> int:
    """What of a share is in use or lent: an idle slot's own share is not, it falls due in a step."""
    return share if tenant.demand > tenant.guarantee or share > tenant.guarantee else tenant.need


@given(tenants(), CARDS)
def test_no_more_is_promised_than_the_card_or_the_guarantees_have(all_: list[Tenant], card: int) -> None:
    found = elastic.shares(all_, card)
    most = max(card, sum(tenant.need for tenant in all_))
    assert sum(promised(*each) for each in zip(all_, found, strict=True)) <= most


@given(tenants(), CARDS)
def test_nobody_is_below_its_guarantee_or_above_its_ceiling(all_: list[Tenant], card: int) -> None:
    for tenant, share in zip(all_, elastic.shares(all_, card), strict=True):
        assert tenant.guarantee <= share <= tenant.ceiling
        assert tenant.elastic or share == tenant.guarantee


@given(tenants(), CARDS)
def test_idle_time_is_divided_by_guarantees(all_: list[Tenant], card: int) -> None:
    found = elastic.shares(all_, card)
    hungry = [
        (tenant, share)
        for tenant, share in zip(all_, found, strict=True)
        if tenant.elastic and tenant.demand == WHOLE and share < tenant.ceiling
    ]
    for (one, first), (other, second) in itertools.combinations(hungry, 2):
        a, b = first - one.guarantee, second - other.guarantee
        assert abs(a * other.guarantee - b * one.guarantee) <= 2 * WHOLE


@given(tenants(), CARDS)
def test_nothing_that_somebody_wants_is_left_idle(all_: list[Tenant], card: int) -> None:
    found = elastic.shares(all_, card)
    hungry = any(
        tenant.elastic and tenant.demand == WHOLE and share < tenant.ceiling
        for tenant, share in zip(all_, found, strict=True)
    )
    if hungry:
        given_ = sum(promised(*each) for each in zip(all_, found, strict=True))
        assert given_ >= card - 2 * len(all_)


@given(tenants(), CARDS, st.data())
def test_who_wants_its_own_back_has_it_after_one_step(
    all_: list[Tenant], card: int, data: st.DataObject
) -> None:
    back = data.draw(st.integers(0, len(all_) - 1))
    after = [
        Tenant(t.elastic, t.guarantee, t.ceiling, WHOLE if index == back else t.demand)
        for index, t in enumerate(all_)
    ]
    found = elastic.shares(after, card)
    assert found[back] >= after[back].guarantee
    others = sum(
        promised(tenant, share)
        for index, (tenant, share) in enumerate(zip(after, found, strict=True))
        if index != back
    )
    # so much of the card is left to it at once, whatever the others had before
    assert WHOLE - others >= min(after[back].guarantee, WHOLE - sum(t.need for t in after) + after[back].need)


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, WHOLE)),
    st.dictionaries(st.integers(0, 9), st.integers(0, WHOLE)),
)
def test_rates_fall_before_others_rise(before: dict[int, int], after: dict[int, int]) -> None:
    down, up = elastic.in_order(before, after)
    now, peak = dict(before), max(sum(before.values()), sum({**before, **after}.values()))
    for key, rate in [*down, *up]:
        now[key] = rate
        assert sum(now.values()) <= peak + elastic.SMALLEST_CHANGE * len(now)
    for key, rate in after.items():
        assert abs(now[key] - rate) < elastic.SMALLEST_CHANGE


@given(
    st.integers(1, WHOLE - 1),
    st.floats(1, 8),
    st.lists(st.tuples(st.integers(0, 2 * WHOLE), st.floats(0.01, 100))),
)
def test_no_measurement_starves_or_frees_a_slot(
    share: int, stretch: float, measurements: list[tuple[int, float]]
) -> None:
    trim, base = 1.0, min(MEASURED, share * stretch)
    for measured, elapsed in measurements:
        trim = elastic.trimmed(trim, share, measured, elapsed)
        rate = elastic.bounded(share, base * trim)
        assert share // elastic.LEAST_PART <= rate <= MEASURED


@given(st.floats(0.01, 100), st.floats(0, 1e9))
def test_a_correction_fades_towards_nothing(trim: float, elapsed: float) -> None:
    faded = elastic.faded(trim, elapsed)
    assert min(1.0, trim) <= faded <= max(1.0, trim)


@given(
    st.floats(0.02, 0.9),
    st.floats(1, 8),
    st.floats(0.3, 3.5),
    st.floats(0.4, 2.5),
    st.integers(0, 2),
)
def test_a_correction_settles_however_the_card_answers(
    share: float, stretch: float, steepness: float, wrong: float, late: int
) -> None:
    """What a card gives goes with the rate to the power `steepness`, and is told half a second late."""
    base = share * stretch
    answers = [share * wrong] * (late + 1)
    trim = 1.0
    for _ in range(200):
        trim = elastic.trimmed(trim, round(share * WHOLE), round(answers.pop(0) * WHOLE), elastic.PERIOD)
        trim = min(max(trim, 0.5 * share / base), 100.0)
        answers.append(min(1.0, share * wrong * trim**steepness))
    if 0.5 * share / base < (1 / wrong) ** (1 / steepness):
        assert answers[-1] == pytest.approx(share, rel=0.02)
