"""What a process uses beyond its claims: never too low because of a race."""

from __future__ import annotations

import random

from gaia_plugin.slots.overhead import QUIET_SAMPLES, RACING_SAMPLES, Claim, Overhead, sampled

QUIET = Claim(100, 0)


def series(*samples: tuple[Claim, int | None, Claim], charged: int = 0) -> Overhead:
    known = Overhead()
    for before, figure, after in samples:
        known = sampled(known, before, figure, after, charged=charged)
    return known


def test_two_quiet_samples_measure() -> None:
    assert series((QUIET, 130, QUIET)).bytes is None
    assert series((QUIET, 130, QUIET), (QUIET, 131, QUIET)).bytes == 31


def test_an_unmeasured_process_stays_unmeasured() -> None:
    assert series(*[(QUIET, None, QUIET)] * 9).bytes is None
    assert series(*[(Claim(100, 5), 130, QUIET)] * 9, charged=40).bytes is None


def test_a_figure_below_the_claim_is_no_overhead() -> None:
    assert series(*[(QUIET, 90, QUIET)] * 2).bytes == 0


def test_an_announced_allocation_does_not_lower_it() -> None:
    known = series(*[(QUIET, 130, QUIET)] * 3)
    paused = Claim(100, 30)
    for _ in range(2 * QUIET_SAMPLES):
        known = sampled(known, paused, 130, paused)
    assert known.bytes == 30


def test_quiet_samples_lower_it_only_in_a_row_and_to_the_largest() -> None:
    known = series(*[(QUIET, 150, QUIET)] * 3)
    for figure in (120, 110):
        known = sampled(known, QUIET, figure, QUIET)
        assert known.bytes == 50
    known = sampled(known, QUIET, 105, QUIET)
    assert known.bytes == 20
    known = sampled(known, Claim(90, 0), 105, QUIET)
    for _ in range(QUIET_SAMPLES - 1):
        known = sampled(known, QUIET, 105, QUIET)
        assert known.bytes == 20


def test_one_quiet_sample_raises_it_at_once() -> None:
    known = series(*[(QUIET, 130, QUIET)] * 2)
    assert sampled(known, QUIET, 150, QUIET).bytes == 50
    assert sampled(known, Claim(0, 0), 150, QUIET).bytes == 30


def test_a_liar_that_never_stands_still_is_charged_all_the_same() -> None:
    racing = (Claim(1, 0), 500, Claim(2, 0))
    assert series(*[racing] * (RACING_SAMPLES - 1), charged=40).bytes is None
    assert series(*[racing] * RACING_SAMPLES, charged=40).bytes == 498


def test_a_program_caught_between_two_frees_is_not_charged_for_what_it_gave_back() -> None:
    """It allocates 5,000 and frees them over and over; the driver is asked in the middle of it."""
    known = Overhead()
    for number in range(RACING_SAMPLES - 1):
        known = sampled(known, Claim(0, 0, number), 5_030, Claim(0, 0, number + 1), charged=30)
    assert known.bytes is None
    known = sampled(known, Claim(0, 0, 99), 30, Claim(0, 0, 99), charged=30)
    known = sampled(known, Claim(0, 0, 99), 30, Claim(0, 0, 99), charged=30)
    assert known.bytes == 30


def test_racing_allocations_never_make_it_wrong() -> None:
    """A process allocates and frees at random between the agent's three looks."""
    dice = random.Random(3)
    for _ in range(300):
        truth, used, returns, known = 30, 100, 0, Overhead()
        for _ in range(40):
            looks = []
            for _ in range(3):
                for _ in range(dice.randrange(3)):
                    now = dice.choice((100, 140, 100 + dice.randrange(60)))
                    returns += now < used
                    used = now
                looks.append((used, returns))
            before, asked, after = looks
            claims = Claim(before[0], 0, before[1]), Claim(after[0], 0, after[1])
            known = sampled(known, claims[0], asked[0] + truth, claims[1], charged=truth)
            assert known.bytes in (None, truth)
        for _ in range(QUIET_SAMPLES):
            known = sampled(known, Claim(used, 0, returns), used + truth, Claim(used, 0, returns))
        assert known.bytes == truth
