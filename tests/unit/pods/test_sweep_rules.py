"""What is given back: what has ended as far as the API server shows, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.sweep import abandoned, ended, finished, unseen
from gaia_plugin.ledger import SliceRecord, SlotRecord
from gaia_plugin.ledger.allocations import Allocation
from gaia_plugin.shares import NOTHING, Share

SHARE = Share(4, 5)


def record(uid: str, container: str = "main") -> SlotRecord:
    part = SliceRecord("GPU-0", SHARE, SHARE, SHARE)
    return SlotRecord(
        f"{uid}--{container}", uid, container, 1, False, "hard", SHARE, (part,), None, None, 0.0
    )


def row(uid: str, container: str = "main", number: int = 0) -> Allocation:
    return Allocation("m", frozenset({"mem-00000"}), f"{number:016x}", uid, container, number)


@pytest.mark.parametrize(("life", "released"), [(Life.LIVING, 0), (Life.UNKNOWN, 0), (Life.ENDED, 1)])
def test_only_what_has_ended_is_released(life: Life, released: int) -> None:
    assert len(ended([record("a")], lambda _: life)) == released


def test_what_is_being_released_or_made_is_left_alone() -> None:
    leaving = replace(record("a"), releasing=True)
    making = replace(record("b"), slices=(SliceRecord("GPU-0", SHARE, NOTHING, SHARE),))
    assert ended([leaving, making], lambda _: Life.ENDED) == []


def test_containers_of_one_pod_end_each_for_itself() -> None:
    def life(owner: Owner) -> Life:
        return Life.ENDED if owner.container == "job" else Life.LIVING

    records = [record("a", "job"), record("a", "main")]
    assert ended(records, life) == records[:1]
    assert finished([row("a", "job"), row("a", "main", 1)], life) == set()
    assert finished([row("a", "job")], life) == {"a"}


def test_what_is_not_seen_is_asked_for() -> None:
    def life(owner: Owner) -> Life:
        return Life.UNKNOWN if owner.uid in "ab" else Life.LIVING

    assert unseen([record("a"), record("c")], [row("b"), row("", "", 1)], life) == {"a", "b"}
    assert unseen([replace(record("a"), releasing=True)], [], life) == set()


@pytest.mark.parametrize(
    ("life", "busy", "struck"),
    [(Life.ENDED, False, 1), (Life.ENDED, True, 0), (Life.LIVING, False, 0), (Life.UNKNOWN, False, 0)],
)
def test_what_was_never_in_force_is_struck_out_after_its_pod(life: Life, busy: bool, struck: int) -> None:
    making = replace(record("b"), slices=(SliceRecord("GPU-0", SHARE, NOTHING, SHARE),))
    assert len(abandoned([record("a"), making], lambda _: life, lambda _: busy)) == struck
