"""What an agent does is counted; what is not watched costs nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gaia_plugin.agent.meters import GPUNODE, NOBODY, Meter, Outcome, outcome_of, timed, writing
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.metrics.tally import BOUNDS, Tally


def test_all_that_can_happen_is_0_from_the_start() -> None:
    events = Tally().events()
    assert set(events.refusals) == {code.value for code in Code}
    assert set(events.resizes) == set(events.prestarts) == {"ok", "refused", "unavailable", "failed"}
    assert {*events.refusals.values(), *events.resizes.values(), *events.prestarts.values()} == {0}
    assert (events.allocations, dict(events.writes), events.heartbeat) == (0, {}, None)


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (0.001, 0), (0.0011, 1), (0.03, 5), (30.0, len(BOUNDS) - 1), (31.0, len(BOUNDS)), (-1.0, 0)],
)
def test_a_time_falls_into_its_bucket(seconds: float, bucket: int) -> None:
    tally = Tally()
    tally.resized(seconds, Outcome.OK)
    times = tally.events().resize_times
    assert [i for i, count in enumerate(times.counts) if count] == [bucket]
    assert times.seconds == max(0.0, seconds)


def test_a_resize_that_was_refused_has_no_latency() -> None:
    tally = Tally()
    tally.resized(0.2, Outcome.REFUSED)
    events = tally.events()
    assert events.resizes["refused"] == 1
    assert sum(events.resize_times.counts) == 0


def test_counts_that_were_told_stay_as_they_were() -> None:
    tally = Tally()
    tally.refused(Code.CARD_FULL)
    before = tally.events()
    tally.refused(Code.CARD_FULL)
    tally.allocated()
    assert (before.refusals["card_full"], before.allocations) == (1, 0)
    assert (tally.events().refusals["card_full"], tally.events().allocations) == (2, 1)


def test_only_a_status_that_was_taken_is_a_heartbeat() -> None:
    now = [100.0]
    tally = Tally(clock=lambda: now[0])
    tally.wrote("event", Outcome.OK)
    tally.wrote(GPUNODE, Outcome.CONFLICT)
    assert tally.events().heartbeat is None
    tally.wrote(GPUNODE, Outcome.OK)
    now[0] = 200.0
    tally.wrote(GPUNODE, Outcome.UNAVAILABLE)
    events = tally.events()
    assert events.heartbeat == 100.0
    assert {outcome: events.writes["gpunode", outcome] for outcome in ("ok", "conflict", "unavailable")} == {
        "ok": 1, "conflict": 1, "unavailable": 1,
    }  # fmt: skip
    assert events.writes["event", "failed"] == 0


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (None, Outcome.OK),
        (Refusal(Code.CARD_FULL, ""), Outcome.REFUSED),
        (Refusal(Code.STALE, ""), Outcome.REFUSED),
        (Refusal(Code.UNAVAILABLE, ""), Outcome.UNAVAILABLE),
        (RuntimeError(), Outcome.FAILED),
        (KeyboardInterrupt(), None),
    ],
)
def test_a_block_is_timed_however_it_ends(fault: BaseException | None, outcome: Outcome | None) -> None:
    told: list[tuple[float, Outcome]] = []
    clock = iter((10.0, 12.5)).__next__

    def block() -> None:
        with timed(lambda seconds, how: told.append((seconds, how)), clock):
            if fault is not None:
                raise fault

    if fault is None:
        block()
    else:
        with pytest.raises(type(fault)):
            block()
    assert told == ([] if outcome is None else [(2.5, outcome)])


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (0, Outcome.UNAVAILABLE),
        (429, Outcome.UNAVAILABLE),
        (500, Outcome.UNAVAILABLE),
        (503, Outcome.UNAVAILABLE),
        (409, Outcome.CONFLICT),
        (403, Outcome.REFUSED),
        (404, Outcome.REFUSED),
        (422, Outcome.REFUSED),
    ],
)
def test_a_write_ends_as_the_server_says(status: int, outcome: Outcome) -> None:
    error, tally = ApiError(status, "", ""), Tally()
    assert outcome_of(error) is outcome
    with pytest.raises(ApiError), writing(tally, "annotation"):
        raise error
    with writing(tally, "annotation"):
        pass
    writes = tally.events().writes
    assert {key: count for key, count in writes.items() if count} == {
        ("annotation", outcome.value): 1,
        ("annotation", "ok"): 1,
    }


@pytest.mark.parametrize("make", [Tally, lambda: NOBODY])
def test_whoever_listens_can_be_told_everything(make: Callable[[], Meter]) -> None:
    meter = make()
    meter.resized(0.1, Outcome.OK)
    meter.refused(Code.CARD_FULL)
    meter.prestart(0.1, Outcome.OK)
    meter.allocated()
    meter.wrote("event", Outcome.OK)
