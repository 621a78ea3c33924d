"""What requests mean, and the sentence for each that means nothing."""

from __future__ import annotations

import pytest

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.placement import Request, accepts, cards_wanted, normalise
from gaia_plugin.shares import Share
from tests.unit.placement.cards import A100, card

CARD = card("a")


@pytest.mark.parametrize(
    ("request_", "cards", "each"),
    [
        pytest.param(Request(47), 1, Share(47, 50), id="half the memory alone: half the compute"),
        pytest.param(Request(1), 1, Share(1, 1), id="the smallest slice has 1 %"),
        pytest.param(Request(94), 1, Share(94, 100), id="all the memory alone: a whole card"),
        pytest.param(Request(16), 1, Share(16, 17), id="17.02 is rounded down"),
        pytest.param(Request(33), 1, Share(33, 35), id="35.1 is rounded down"),
        pytest.param(Request(8), 1, Share(8, 9), id="8.5 is rounded up"),
        pytest.param(Request(16, 25), 1, Share(16, 25), id="both as they stand"),
        pytest.param(Request(16, 100), 1, Share(16, 100), id="all the compute, a part of the memory"),
        pytest.param(Request(None, 100), 1, Share(94, 100), id="a whole card by cores alone"),
        pytest.param(Request(None, 300), 3, Share(94, 100), id="three whole cards by cores alone"),
        pytest.param(Request(None, 300, 3), 3, Share(94, 100), id="the same with the count said"),
        pytest.param(Request(40, 200), 2, Share(20, 100), id="two whole cards' compute, memory split"),
        pytest.param(Request(40, None, 2), 2, Share(20, 21), id="memory alone split"),
        pytest.param(Request(40, 50, 2), 2, Share(20, 25), id="both split"),
        pytest.param(Request(40, 150, 2), 2, Share(20, 75), id="the count says how 150 % are meant"),
        pytest.param(Request(95), 1, Share(95, 101), id="more than the card is for others to refuse"),
    ],
)
def test_a_request_means_a_share_of_each_card(request_: Request, cards: int, each: Share) -> None:
    assert normalise(request_, CARD) == each
    assert cards_wanted(request_) == cards


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (
            Request(None, 50),
            "50 % compute without memory is not a slice: add how much memory it shall have, "
            "such as 11.75 GiB, or ask for whole cards (100 %).",
        ),
        (
            Request(None, 100, 2),
            "100 % compute without memory is not a slice: add how much memory it shall have, "
            "such as 23.5 GiB, or ask for whole cards (200 %).",
        ),
        (
            Request(40, 150),
            "150 % compute is neither a part of one card nor whole cards: ask for 100 % or 200 %.",
        ),
        (
            Request(None, 250),
            "250 % compute is neither a part of one card nor whole cards: ask for 200 % or 300 %.",
        ),
        (
            Request(40, 300, 2),
            "300 % compute is more than 2 cards have: ask for at most 200 %, or for more cards.",
        ),
        (
            Request(41, None, 2),
            "10.25 GiB cannot be split evenly over 2 cards in steps of 256 MiB: ask for 10 GiB or 10.5 GiB.",
        ),
        (
            Request(41, 200),
            "10.25 GiB cannot be split evenly over 2 cards in steps of 256 MiB: ask for 10 GiB or 10.5 GiB.",
        ),
        (
            Request(1, 2, 2),
            "256 MiB cannot be split evenly over 2 cards in steps of 256 MiB: ask for 512 MiB.",
        ),
        (Request(40, 75, 2), "75 % compute cannot be split evenly over 2 cards: ask for 74 % or 76 %."),
        (Request(40, 1, 2), "1 % compute cannot be split evenly over 2 cards: ask for 2 %."),
        (Request(0), "Memory must be more than zero; the smallest slice is 256 MiB."),
        (Request(-4), "Memory must be more than zero; the smallest slice is 256 MiB."),
        (Request(True), "Memory must be more than zero; the smallest slice is 256 MiB."),
        (Request(4, 0), "Compute must be a whole number of percent, from 1 on."),
        (Request(4, -1), "Compute must be a whole number of percent, from 1 on."),
        (Request(4, 10, 0), "The number of cards must be a whole number from 1 on."),
        (Request(4, 10, -2), "The number of cards must be a whole number from 1 on."),
        (
            Request(),
            "Say how much memory the slice shall have, such as 8GiB; compute may be left out.",
        ),
    ],
)
def test_what_means_nothing_is_refused_with_what_would(request_: Request, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        normalise(request_, CARD)
    assert (refused.value.code, refused.value.sentence) == (Code.INVALID_AMOUNT, sentence)


@pytest.mark.parametrize(
    ("models", "takes"),
    [
        ([], True),
        (["A100"], True),
        (["a100-sxm4"], True),
        (["NVIDIA-A100-SXM4-40GB"], True),
        ([A100], True),
        (["H100", "A100"], True),
        (["A10"], False),
        (["SXM4 A100"], False),
        (["H100"], False),
        ([""], False),
        (["--"], False),
    ],
)
def test_a_model_is_matched_by_its_words(models: list[str], takes: bool) -> None:
    assert accepts(frozenset(models), A100) is takes
