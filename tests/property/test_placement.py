"""Placement over all small cases: against brute force, and through sequences of grants and releases."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement import (
    CardState,
    Offer,
    Request,
    Slice,
    best_offer,
    cards_wanted,
    largest_free,
    place,
    total,
)
from gaia_plugin.shares import Share
from gaia_plugin.units import MEMORY_UNIT

MODELS = ("NVIDIA A100-SXM4-40GB", "Tesla T4")
UUIDS = "abcdef"


@st.composite
def card_lists(draw: st.DrawFn, alike: bool = False) -> list[CardState]:
    """Up to five cards of 6 to 16 units, some in use, some sick, some booked over their size."""
    cards = []
    for uuid in draw(st.permutations(UUIDS))[: draw(st.integers(1, 5))]:
        units = 12 if alike else draw(st.sampled_from([6, 12, 16]))
        capacity = Share(units, 100)
        free = draw(
            st.just(capacity)
            | st.builds(Share, st.integers(-1, units), st.sampled_from([0, 1, 10, 25, 33, 50, 90, 99, 100]))
        )
        model = MODELS[0] if alike else draw(st.sampled_from(MODELS))
        cards.append(CardState(uuid, model, capacity, free, draw(st.sampled_from([True, True, True, False]))))
    return cards


topologies = st.dictionaries(
    st.sets(st.sampled_from(UUIDS), min_size=2, max_size=2).map(frozenset),
    st.builds(Tie, st.sampled_from(Level), st.integers(0, 3)),
).map(Topology)

requests = st.builds(
    Request,
    memory_units=st.none() | st.integers(0, 40),
    cores=st.none() | st.sampled_from([0, 1, 2, 10, 25, 26, 50, 75, 100, 101, 150, 200, 300, 400]),
    count=st.sampled_from([1, 1, 1, 1, 2, 2, 3, 4]),
    models=st.sampled_from([frozenset[str](), frozenset({"A100"}), frozenset({"T4", "A100"})]),
)


def meaning(request: Request, card: CardState) -> tuple[int, Share] | None:
    """Return the cards taken and the share of each, from the words of the design; None: no meaning."""
    memory, cores, count = request.memory_units, request.cores, request.count
    if memory is None and cores is None:
        return None
    if memory == 0 or cores == 0:
        return None
    if cores is not None and count == 1 and cores > 100:
        if cores % 100:
            return None
        count = cores // 100
    if cores is not None and (cores % count or cores > 100 * count):
        return None
    if memory is None:
        return (count, Share(card.capacity.units, 100)) if cores == 100 * count else None
    if memory % count:
        return None
    units = memory // count
    if cores is not None:
        return count, Share(units, cores // count)
    part = Fraction(100 * units, card.capacity.units) + Fraction(1, 2)
    return count, Share(units, max(1, part.numerator // part.denominator))


def brute_force(request: Request, cards: list[CardState]) -> bool:
    """Tell whether any set of distinct cards could take the request."""
    meant = [(card, meaning(request, card)) for card in cards]
    for size in range(1, len(cards) + 1):
        for chosen in combinations(meant, size):
            if all(
                what is not None
                and what[0] == size
                and card.healthy
                and (not request.models or any(name in card.model for name in request.models))
                and what[1].units <= card.free.units
                and what[1].cores <= card.free.cores
                for card, what in chosen
            ):
                return True
    return False


def outcome(
    request: Request, cards: list[CardState], topology: Topology | None = None
) -> tuple[Slice, ...] | Refusal:
    try:
        return place(request, cards, topology)
    except Refusal as refusal:
        return refusal


def granted(request: Request, cards: list[CardState]) -> bool:
    return not isinstance(outcome(request, cards), Refusal)


@settings(max_examples=400, deadline=None)
@given(request=requests, cards=card_lists(), topology=topologies)
def test_what_is_placed_fits_on_distinct_cards_and_adds_up(
    request: Request, cards: list[CardState], topology: Topology
) -> None:
    slices = outcome(request, cards, topology)
    if isinstance(slices, Refusal):
        assert not brute_force(request, cards)
        assert slices.sentence.endswith(".")
        assert (slices.best_memory is None) == (slices.best_cores is None)
        return
    by_uuid = {card.uuid: card for card in cards}
    assert len({one.card for one in slices}) == len(slices) == cards_wanted(request)
    for one in slices:
        assert by_uuid[one.card].healthy
        assert one.share.fits(by_uuid[one.card].free)
        assert one.share == (meaning(request, by_uuid[one.card]) or (0, None))[1]
    if request.memory_units is not None:
        assert total(slices).units == request.memory_units
    if request.cores is not None:
        assert total(slices).cores == request.cores


@settings(max_examples=200, deadline=None)
@given(request=requests, cards=card_lists(), topology=topologies, order=st.randoms(use_true_random=False))
def test_the_order_of_the_cards_changes_nothing(
    request: Request, cards: list[CardState], topology: Topology, order: object
) -> None:
    shuffled = list(cards)
    order.shuffle(shuffled)  # type: ignore[attr-defined]

    def answer(given_cards: list[CardState]) -> object:
        found = outcome(request, given_cards, topology)
        if isinstance(found, Refusal):
            return found.code, found.sentence, found.best_memory, found.best_cores
        return found

    assert answer(cards) == answer(shuffled)
    assert best_offer(request, cards) == best_offer(request, shuffled)


@settings(max_examples=400, deadline=None)
@given(request=requests, cards=card_lists())
def test_the_best_offer_is_granted_and_not_one_unit_more(request: Request, cards: list[CardState]) -> None:
    offer = best_offer(request, cards)
    if granted(request, cards):
        assert offer is not None
        assert offer.request == request
        return
    if offer is None:
        hopeless = request.memory_units in (0,) or request.cores == 0 or request == _empty(request)
        assert hopeless or not brute_force(Request(1, 1, 1, request.models), cards)
        return
    placed = total(place(offer.request, cards))
    assert offer.total.fits(placed)
    _nothing_larger(request, offer, cards)


def _empty(request: Request) -> Request:
    return replace(request, memory_units=None, cores=None)


def _nothing_larger(request: Request, offer: Offer, cards: list[CardState]) -> None:
    """Check the neighbours of an offer, up to what was asked."""
    count = cards_wanted(offer.request)
    wanted = meaning(request, cards[0])
    if wanted is None:
        return
    memory, cores = offer.request.memory_units, offer.request.cores
    if count == wanted[0]:
        if memory is not None and request.memory_units is not None and memory + count <= request.memory_units:
            assert not brute_force(replace(offer.request, memory_units=memory + count), cards)
        if cores is not None and request.cores is not None and cores + count <= request.cores:
            assert not brute_force(replace(offer.request, cores=cores + count), cards)
    for more in range(count + 1, wanted[0] + 1):
        if request.memory_units is None or request.cores == 100 * wanted[0] > 100 * request.count:
            smallest = Request(None if request.memory_units is None else more, 100 * more, more)
        else:
            smallest = Request(more, None if request.cores is None else more, more)
        assert not brute_force(replace(smallest, models=request.models), cards)


@settings(max_examples=200, deadline=None)
@given(request=requests, cards=card_lists(alike=True))
def test_the_numbers_of_a_refusal_are_granted_when_asked_for(
    request: Request, cards: list[CardState]
) -> None:
    """On cards of one kind; by the two numbers alone, as a form or a script would ask."""
    refusal = outcome(request, cards)
    if not isinstance(refusal, Refusal) or refusal.best_memory is None:
        return
    units, rest = divmod(refusal.best_memory, MEMORY_UNIT)
    assert rest == 0
    # The count is kept, or falls to the number of cards that have room.
    again = [
        Request(units, refusal.best_cores, count, request.models) for count in range(1, request.count + 1)
    ]
    assert any(granted(one, cards) for one in again)


@settings(max_examples=100, deadline=None)
@given(cards=card_lists())
def test_the_largest_free_slice_is_granted(cards: list[CardState]) -> None:
    largest = largest_free(cards)
    if largest is None:
        assert not granted(Request(1, 1), cards)
    else:
        assert granted(Request(largest.units, largest.cores), cards)


class GrantsAndReleases(RuleBasedStateMachine):
    """A machine of four cards under whatever people do to it."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.capacity = {uuid: Share(94 if uuid in "ab" else 160, 100) for uuid in "abcd"}
        self.held: list[tuple[Slice, ...]] = []
        self.topology = Topology.of([("a", "b", Tie(Level.NVLINK, 2)), ("c", "d", Tie(Level.SWITCH))])

    def cards(self) -> list[CardState]:
        used = dict.fromkeys(self.capacity, Share())
        for slices in self.held:
            for one in slices:
                used[one.card] += one.share
        return [
            CardState(uuid, MODELS[uuid in "cd"], size, size - used[uuid])
            for uuid, size in self.capacity.items()
        ]

    @rule(
        target=running,
        memory=st.none() | st.integers(1, 200),
        cores=st.none() | st.sampled_from([1, 10, 25, 50, 100, 200]),
        count=st.sampled_from([1, 1, 1, 2, 3]),
    )
    def start(self, memory: int | None, cores: int | None, count: int) -> tuple[Slice, ...]:
        slices = outcome(Request(memory, cores, count), self.cards(), self.topology)
        if isinstance(slices, Refusal):
            assert slices.code in {Code.CARD_FULL, Code.INVALID_AMOUNT}
            return ()
        self.held.append(slices)
        return slices

    @rule(slices=consumes(running))
    def stop(self, slices: tuple[Slice, ...]) -> None:
        if slices:
            self.held.remove(slices)

    @invariant()
    def no_card_is_overcommitted(self) -> None:
        for card in self.cards():
            assert card.free.units >= 0
            assert card.free.cores >= 0


GrantsAndReleases.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestGrantsAndReleases = GrantsAndReleases.TestCase
