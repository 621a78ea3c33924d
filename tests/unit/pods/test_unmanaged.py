"""The watchdog's rules, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaia_plugin.agent.pods import findings
from gaia_plugin.agent.pods.findings import Finding, Findings, Said, Suspect
from gaia_plugin.agent.pods.unmanaged import (
    Excess,
    Kind,
    OnCard,
    Process,
    Sight,
    Subject,
    foreign_units,
    kind_of,
    over_slot,
    overbookers,
    sentence,
    unmanaged,
)
from gaia_plugin.shares import Share
from gaia_plugin.units import GIB, MIB

CARD, UID = "GPU-0", "5f0c3e6a-7c1d-4f0e-9a53-0d7c4c1f2b11"
HOST = Process(CARD, 100, GIB, "Xorg")
BARE = replace(HOST, uid=UID, container_id="ab" * 32, container="main", name="python")
SLICED = replace(BARE, slots=("s1",))
HONEST = replace(SLICED, named=True)


@pytest.mark.parametrize(
    ("process", "kind"),
    [
        (HONEST, None),
        (SLICED, Kind.NO_LIBRARY),
        (BARE, Kind.NO_SLICE),
        (HOST, Kind.HOST),
        (replace(SLICED, bytes=0), None),
        (replace(BARE, bytes=0), None),
        (replace(SLICED, bytes=None), Kind.NO_LIBRARY),
        (replace(HOST, bytes=None), Kind.HOST),
        (replace(HONEST, bytes=None), None),
        # its container is not known yet, and one of the pod's pages has it
        (replace(HONEST, container="", slots=("s1", "s2")), None),
        (replace(SLICED, container="", slots=("s1", "s2")), Kind.NO_LIBRARY),
    ],
)
def test_what_is_wrong_with_a_process(process: Process, kind: Kind | None) -> None:
    assert kind_of(process) is kind


def test_processes_of_a_container_are_told_together() -> None:
    found = unmanaged([SLICED, replace(SLICED, pid=99, name="sh"), HONEST, replace(HOST, pid=7)])
    assert found == {
        Subject(Kind.NO_LIBRARY, CARD, UID, "main", "s1"): Sight(
            (99, 100), ("python", "sh"), 2 * GIB, frozenset({"ab" * 32})
        ),
        Subject(Kind.HOST, CARD): Sight((7,), ("Xorg",), GIB),
    }


def test_an_amount_that_is_not_known_in_full_is_not_told() -> None:
    (sight,) = unmanaged([SLICED, replace(SLICED, pid=99, bytes=None)]).values()
    assert sight.bytes is None


@pytest.mark.parametrize(
    ("amount", "raised", "found"),
    [
        (5 * GIB, 16, True),
        (4 * GIB, 16, False),
        (4 * GIB + 1, 16, True),
        (None, 16, True),
        (5 * GIB, None, False),
    ],
)
def test_more_than_was_given(amount: int | None, raised: int | None, found: bool) -> None:
    known = {} if raised is None else {OnCard("s1", CARD): raised}
    assert bool(over_slot([replace(HONEST, bytes=amount)], known)) is found


@pytest.mark.parametrize(
    ("processes", "used", "held", "units"),
    [
        ([], 0, {}, (0, 0)),
        ([], None, {}, (0, 0)),
        ([], 200 * MIB, {}, (0, 0)),  # every card has some in use
        ([], 256 * MIB, {}, (0, 1)),
        ([HONEST], GIB, {"s1": 16}, (0, 0)),
        ([SLICED], GIB, {"s1": 16}, (0, 0)),  # booked in its slot
        ([HOST], GIB, {}, (4, 0)),
        ([replace(HOST, bytes=GIB + 1)], GIB + 1, {}, (5, 0)),
        ([BARE, HONEST], 2 * GIB, {"s1": 16}, (4, 0)),
        ([HONEST], 3 * GIB, {"s1": 16}, (0, 8)),
        ([HONEST], None, {"s1": 16}, (0, 0)),
        ([HOST], None, {}, (4, 0)),
        ([HOST], 0, {}, (4, 0)),  # it has ended between the two questions
        # no figures: the slot is taken to use all it holds, and the rest is nobody's
        ([replace(HONEST, bytes=None)], 4 * GIB, {"s1": 16}, (0, 0)),
        ([replace(HONEST, bytes=None)], 6 * GIB, {"s1": 16}, (0, 8)),
        ([replace(HOST, bytes=None)], 2 * GIB, {"s1": 16}, (0, 8)),
    ],
)
def test_what_nobodys_slot_uses(
    processes: list[Process], used: int | None, held: dict[str, int], units: tuple[int, int]
) -> None:
    assert foreign_units(processes, used, held) == units


A, B, ELSEWHERE = OnCard("a", CARD), OnCard("b", CARD), OnCard("a", "GPU-1")
OVER = {CARD: Share(4, 0)}


@pytest.mark.parametrize(
    ("over", "excesses", "raised", "inherited", "meant"),
    [
        ({}, [Excess(A, 4)], [A], [], []),
        (OVER, [Excess(A, 4)], [A], [], [A]),
        (OVER, [Excess(A, 4)], [], [], []),  # shrunk below its use
        (OVER, [Excess(A, 9), Excess(B, 4)], [B], [], [B]),
        (OVER, [Excess(A, 4), Excess(B, 9)], [A, B], [], [B]),
        (OVER, [], [A], [], []),  # it has let go
        (OVER, [Excess(A, 4), Excess(B, 9)], [], [CARD], [B]),
        (OVER, [Excess(A, 4), Excess(B, 9)], [A], [CARD], [A]),
        (OVER, [Excess(ELSEWHERE, 4)], [ELSEWHERE], [], []),
        ({CARD: Share(0, 5)}, [Excess(A, 4)], [A], [], []),  # of time nobody can take too much
    ],
)
def test_whom_to_stop(
    over: dict[str, Share],
    excesses: list[Excess],
    raised: list[OnCard],
    inherited: list[str],
    meant: list[OnCard],
) -> None:
    assert overbookers(over, excesses, raised, inherited) == meant


SUBJECT = Subject(Kind.NO_LIBRARY, CARD, UID, "main", "s1")
SEEN = Sight((100,), ("python",), GIB, frozenset({"ab" * 32}))


@pytest.mark.parametrize(
    ("subject", "sight", "text"),
    [
        (SUBJECT, SEEN, "Process 100 (python) in container main holds 1 GiB of card 0 and did not register"),
        (replace(SUBJECT, kind=Kind.NO_SLICE), SEEN, "of which that container has no slice"),
        (
            Subject(Kind.HOST, CARD),
            SEEN,
            "of this machine, outside of any pod, holds 1 GiB of card 0",
        ),
        (
            replace(SUBJECT, kind=Kind.OVER_SLOT),
            replace(SEEN, granted=2),
            "holds 1 GiB of card 0, and 512 MiB were given",
        ),
        (replace(SUBJECT, kind=Kind.OTHERS_PAGE), replace(SEEN, page="p, main"), "the usage page of p, main"),
        (Subject(Kind.OTHERS_PAGE, ""), replace(SEEN, page="p, main"), "in no pod, registered"),
        (SUBJECT, replace(SEEN, bytes=None), "holds an amount that the driver does not tell of card 0"),
        (
            SUBJECT,
            replace(SEEN, pids=(1, 2, 3, 4, 5)),
            "Processes 1, 2, 3, 4... (python) in container main",
        ),
        (replace(SUBJECT, container=""), replace(SEEN, names=()), "Process 100 holds 1 GiB"),
    ],
)
def test_people_are_told_what_and_what_to_do(subject: Subject, sight: Sight, text: str) -> None:
    told = sentence(subject, sight, "card 0")
    assert text in told
    assert told.endswith(".")


# -- what is told, and when


@pytest.mark.parametrize(
    ("before", "sight", "now", "due"),
    [
        (None, SEEN, 0.0, True),
        (Said(SEEN, 0.0), SEEN, 599.9, False),
        (Said(SEEN, 0.0), SEEN, 600.0, True),
        (Said(SEEN, 0.0), replace(SEEN, pids=(100, 101)), 29.9, False),
        (Said(SEEN, 0.0), replace(SEEN, pids=(100, 101)), 30.0, True),
        (Said(SEEN, 0.0), replace(SEEN, pids=()), 30.0, False),
        (Said(SEEN, 0.0), replace(SEEN, bytes=2 * GIB - 1), 30.0, False),
        (Said(SEEN, 0.0), replace(SEEN, bytes=2 * GIB), 30.0, True),
        (Said(SEEN, 0.0), replace(SEEN, bytes=None), 30.0, False),
    ],
)
def test_when_something_is_said_again(before: Said | None, sight: Sight, now: float, due: bool) -> None:
    assert findings.worth_saying(before, sight, now) is due


def test_two_rounds_in_a_row_make_a_finding() -> None:
    once = findings.confirmed({}, {SUBJECT: SEEN}, [], 5.0)
    assert once == {SUBJECT: Suspect(SEEN, 5.0, 1)}
    assert findings.confirmed(once, {SUBJECT: SEEN}, [], 6.0) == {SUBJECT: Suspect(SEEN, 5.0, 2)}
    assert findings.confirmed(once, {}, [], 6.0) == {}
    assert findings.confirmed(once, {}, [CARD], 6.0) == once


def test_the_condition_tells_the_first_and_keeps_its_time() -> None:
    quiet = findings.condition([], None, 0.0)
    assert (quiet.status, quiet.last_transition_time) == ("False", "1970-01-01T00:00:00Z")
    assert findings.condition([], quiet, 60.0) == quiet
    found = [Finding(SUBJECT, SEEN, f"Sentence {number}.", "default/p") for number in range(5)]
    loud = findings.condition(found, quiet, 60.0)
    assert (loud.status, loud.reason, loud.last_transition_time) == ("True", "Found", "1970-01-01T00:01:00Z")
    assert loud.message.startswith("default/p: Sentence 0. default/p: Sentence 1.")
    assert loud.message.endswith("Sentence 2. And 2 more.")
    assert findings.condition(found[:1], loud, 99.0).last_transition_time == "1970-01-01T00:01:00Z"


def test_findings_are_read_by_slot_and_by_card() -> None:
    host = Finding(Subject(Kind.HOST, CARD), replace(SEEN, pids=(7, 8)), "A program.")
    mine = Finding(SUBJECT, SEEN, "Mine.", "default/p")
    all_of_them = Findings((host, mine))
    assert all_of_them.of_slot("s1") == "Mine."
    assert all_of_them.of_slot("") == all_of_them.of_slot("s2") == ""
    assert all_of_them.of_card(CARD) == "A program."
    assert all_of_them.processes() == {(CARD, Kind.HOST): 2, (CARD, Kind.NO_LIBRARY): 1}
