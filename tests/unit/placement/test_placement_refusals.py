"""Each refusal: its code, its sentence, its best offer."""

from __future__ import annotations

import pytest

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.placement import CardState, Offer, Request, best_offer, largest_free, place
from gaia_plugin.shares import Share
from gaia_plugin.units import MEMORY_UNIT
from tests.unit.placement.cards import T4, card

BUSY = [card("a", (14, 15)), card("b", (20, 40))]
FULL = [card("a", (94, 0)), card("b", (0, 50))]
Row = tuple[Request, list[CardState], Code, str, tuple[int, int] | None]

TABLE: list[Row] = [
    (
        Request(32),
        BUSY,
        Code.CARD_FULL,
        "No card has 8 GiB and 34 % compute (compute that comes with the memory) free now: "
        "the largest free slice is 5 GiB and 40 % compute. "
        "You can have up to 5 GiB and 21 % compute now.",
        (20, 21),
    ),
    (
        Request(32, 40),
        BUSY,
        Code.CARD_FULL,
        "No card has 8 GiB and 40 % compute free now: the largest free slice is 5 GiB and 40 % compute, "
        "and you can have up to that.",
        (20, 40),
    ),
    (
        Request(48),
        [card("a", (70, 40))],
        Code.CARD_FULL,
        "No card has 12 GiB and 51 % compute (compute that comes with the memory) free now: "
        "the largest free slice is 17.5 GiB and 40 % compute. "
        "You can have up to 9.5 GiB and 40 % compute now. "
        "With less compute you can have 12 GiB and 40 % compute.",
        (38, 40),
    ),
    (
        Request(32),
        FULL,
        Code.CARD_FULL,
        "No card has 8 GiB and 34 % compute (compute that comes with the memory) free now. "
        "Nothing is free right now; try again when somebody has stopped a server or made a slice smaller.",
        None,
    ),
    (
        Request(None, 100),
        BUSY,
        Code.CARD_FULL,
        "No whole card is free now: the largest free slice is 5 GiB and 40 % compute, "
        "and you can have up to that.",
        (20, 40),
    ),
    (
        Request(None, 200),
        [card("a"), card("b", (20, 40))],
        Code.CARD_FULL,
        "Of 2 whole cards only 1 is free now. You can have 1 whole card (23.5 GiB) now.",
        (94, 100),
    ),
    (
        Request(None, 200),
        [card("a"), card("b", healthy=False)],
        Code.CARD_FULL,
        "Of 2 whole cards only 1 is free now. You can have 1 whole card (23.5 GiB) now.",
        (94, 100),
    ),
    (
        Request(None, 300, 3),
        [card("a"), card("b"), card("c", (20, 40))],
        Code.CARD_FULL,
        "Of 3 whole cards only 2 are free now. You can have 2 whole cards (47 GiB) now.",
        (188, 200),
    ),
    (
        Request(32, None, 2),
        BUSY,
        Code.CARD_FULL,
        "There are not 2 cards with 4 GiB and 17 % compute (compute that comes with the memory) "
        "each free now: the largest free slice is 5 GiB and 40 % compute. "
        "You can have up to 7 GiB and 30 % compute in total, over 2 cards now.",
        (28, 30),
    ),
    (
        Request(160),
        BUSY,
        Code.INVALID_AMOUNT,
        "40 GiB is more than one card holds: ask for at most 23.5 GiB, or spread it over 2 cards. "
        "You can have up to 5 GiB and 21 % compute now.",
        (20, 21),
    ),
    (
        Request(800, 50),
        BUSY,
        Code.INVALID_AMOUNT,
        "200 GiB is more than one card holds: ask for at most 23.5 GiB. "
        "You can have up to 5 GiB and 40 % compute now.",
        (20, 40),
    ),
    (
        Request(200, 50, 2),
        [card("a"), card("b")],
        Code.INVALID_AMOUNT,
        "25 GiB on each of 2 cards is more than they hold; the largest has 23.5 GiB. "
        "You can have up to 47 GiB and 50 % compute in total, over 2 cards now.",
        (188, 50),
    ),
    (
        Request(40, 20, 4),
        [card("a"), card("b")],
        Code.INVALID_AMOUNT,
        "4 cards are asked for and there are only 2 here. "
        "You can have up to 10 GiB and 20 % compute in total, over 2 cards now.",
        (40, 20),
    ),
    (
        Request(None, 400),
        [card("a")],
        Code.INVALID_AMOUNT,
        "4 cards are asked for and there is only 1 here. You can have 1 whole card (23.5 GiB) now.",
        (94, 100),
    ),
    (
        Request(None, 200, models=frozenset({"T4"})),
        [card("a"), card("b", model=T4)],
        Code.INVALID_AMOUNT,
        "2 cards are asked for and there is only 1 of that model. You can have 1 whole card (23.5 GiB) now.",
        (94, 100),
    ),
    (
        Request(40, 150),
        [card("a"), card("b")],
        Code.INVALID_AMOUNT,
        "150 % compute is neither a part of one card nor whole cards: ask for 100 % or 200 %.",
        (40, 100),
    ),
    (
        Request(None, 50),
        [card("a")],
        Code.INVALID_AMOUNT,
        "50 % compute without memory is not a slice: add how much memory it shall have, "
        "such as 11.75 GiB, or ask for whole cards (100 %).",
        (47, 50),
    ),
    (
        Request(0),
        [card("a")],
        Code.INVALID_AMOUNT,
        "Memory must be more than zero; the smallest slice is 256 MiB.",
        None,
    ),
    (
        Request(8, models=frozenset({"H100", "A10"})),
        [card("a"), card("b", model=T4)],
        Code.NO_SUCH_CARD,
        "There is no card of model A10 or H100 here; there is: NVIDIA A100-SXM4-40GB, Tesla T4.",
        None,
    ),
    (Request(8), [], Code.NO_SUCH_CARD, "There is no GPU here that could be shared.", None),
    (
        Request(8),
        [card("a", healthy=False)],
        Code.UNAVAILABLE,
        "No card can take a slice at the moment: none of them is healthy. `gaia cards` says more.",
        None,
    ),
]


@pytest.mark.parametrize(
    ("request_", "cards", "code", "sentence", "best"), TABLE, ids=[row[3][:60] for row in TABLE]
)
def test_a_refusal_says_why_and_what_would_be_granted(
    request_: Request, cards: list[CardState], code: Code, sentence: str, best: tuple[int, int] | None
) -> None:
    for order in (cards, cards[::-1]):
        with pytest.raises(Refusal) as refused:
            place(request_, order)
        refusal = refused.value
        assert (refusal.code, refusal.sentence) == (code, sentence)
        offered = None if best is None else (best[0] * MEMORY_UNIT, best[1])
        assert (refusal.best_memory, refusal.best_cores) == (offered or (None, None))


@pytest.mark.parametrize(
    ("request_", "cards", "offer"),
    [
        pytest.param(
            Request(16), [card("a")], Offer(Request(16), Share(16, 17)), id="what fits is offered as it is"
        ),
        pytest.param(
            Request(90, 90),
            [card("a", (90, 10)), card("b", (50, 50))],
            Offer(Request(50, 50), Share(50, 50)),
            id="as equal a part of both as can be",
        ),
        pytest.param(
            Request(40, 40, 2),
            [card("a", (30, 30)), card("b", (10, 90)), card("c", (12, 12))],
            Offer(Request(24, 24, 2), Share(24, 24)),
            id="the number of cards is kept",
        ),
        pytest.param(
            Request(40, 40, 2),
            [card("a", (30, 30)), card("b", (0, 90))],
            Offer(Request(30, 30), Share(30, 30)),
            id="unless there is no room on so many",
        ),
        pytest.param(
            Request(40, 200),
            [card("a", (10, 100)), card("b", (90, 90))],
            Offer(Request(10, 100), Share(10, 100)),
            id="whole cards' compute stays whole",
        ),
        pytest.param(
            Request(40, 200),
            [card("a", (60, 60)), card("b", (90, 90))],
            Offer(Request(40, 90), Share(40, 90)),
            id="as long as a whole one is free",
        ),
        pytest.param(
            Request(None, 200),
            [card("a", capacity=(160, 100)), card("b", capacity=(64, 100)), card("c", (1, 1))],
            Offer(Request(None, 200), Share(128, 200)),
            id="whole cards of two sizes count as the smaller",
        ),
        pytest.param(Request(4), [card("a", (0, 0))], None, id="nothing"),
    ],
)
def test_the_best_offer_is_the_nearest_grantable(
    request_: Request, cards: list[CardState], offer: Offer | None
) -> None:
    assert best_offer(request_, cards) == offer
    assert best_offer(request_, cards[::-1]) == offer


@pytest.mark.parametrize(
    ("cards", "largest"),
    [
        ([card("a", (50, 10)), card("b", (20, 30))], Share(20, 30)),
        ([card("a", (50, 0)), card("b", (0, 30))], None),
        ([card("a", (50, 50), healthy=False), card("b", (1, 1))], Share(1, 1)),
        ([], None),
    ],
)
def test_the_largest_free_slice_is_by_the_scarcer_of_both(
    cards: list[CardState], largest: Share | None
) -> None:
    assert largest_free(cards) == largest
