"""Who holds these devices: tables, and anything at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.agent.pods.identity import (
    Answer,
    Found,
    Life,
    Owner,
    answer,
    names_in,
    names_of,
    news,
    twice,
)
from gaia_plugin.ledger.allocations import Allocation

MEMORY, CORES, KIND = "gaia.io/vgpu-memory", "gaia.io/vgpu-cores", "gaia.io/slot"
IDS = frozenset({"mem-00000", "mem-00001"})
A, B = Owner("uid-a", "main"), Owner("uid-b", "main")


@dataclass(frozen=True)
class Entry:
    uid: str
    container: str
    resource: str
    ids: frozenset[str]
    cdi_names: tuple[str, ...]


def row(
    owner: Owner | None = None, number: int = 1, ids: frozenset[str] = IDS, resource: str = MEMORY
) -> Allocation:
    made = Allocation(resource, ids, f"{number:016x}", number=number)
    return made if owner is None else replace(made, uid=owner.uid, container=owner.container)


def entry(of: Allocation, owner: Owner, kind: str = KIND) -> Entry:
    return Entry(owner.uid, owner.container, of.resource, of.ids, (f"{kind}={of.name}",))


def lives(**by_uid: str) -> Callable[[Owner], Life]:
    known = {uid.replace("_", "-"): Life(life) for uid, life in by_uid.items()}
    return lambda owner: known.get(owner.uid, Life.UNKNOWN)


def slots(*owners: Owner) -> Callable[[Owner], bool]:
    return lambda owner: owner in owners


@pytest.mark.parametrize(
    ("rows", "life", "has", "ensure", "wait"),
    [
        pytest.param([row(A)], lives(uid_a="living"), slots(), (A,), None, id="a pod that is seen"),
        pytest.param([row(A)], lives(), slots(), (), A, id="a pod that is not seen yet"),
        pytest.param([row(A)], lives(), slots(A), (A,), None, id="a slot needs no API server"),
        pytest.param([row(A)], lives(uid_a="ended"), slots(A), (), None, id="an ended pod gets nothing"),
        pytest.param([], lives(), slots(), (), None, id="nothing known"),
        pytest.param([row()], lives(), slots(), (), None, id="not in the record yet"),
        pytest.param(
            [row(B, 2), row(A)], lives(uid_a="living", uid_b="living"), slots(A), (B, A), None,
            id="a name that came back: both are answered for",
        ),
        pytest.param(
            [row(B, 2), row(A)], lives(uid_b="living"), slots(), (B,), None,
            id="an older one that nobody sees is not waited for",
        ),
        pytest.param(
            [row(B, 2), row(A)], lives(uid_a="living"), slots(A), (A,), B,
            id="the newest is waited for beside an older one",
        ),
        pytest.param(
            [row(B, 2), row(A)], lives(uid_a="ended", uid_b="living"), slots(A), (B,), None,
            id="the same devices after their pod has ended",
        ),
        pytest.param(
            [row(None, 3), row(A)], lives(uid_a="living"), slots(), (A,), None,
            id="an answer whose pod was refused is nobody's",
        ),
        pytest.param(
            [row(A, 2), row(Owner("uid-a", "prepare"))], lives(uid_a="living"), slots(),
            (A, Owner("uid-a", "prepare")), None, id="devices handed on within a pod",
        ),
    ],
)  # fmt: skip
def test_answers(
    rows: list[Allocation],
    life: Callable[[Owner], Life],
    has: Callable[[Owner], bool],
    ensure: tuple[Owner, ...],
    wait: Owner | None,
) -> None:
    found = answer(rows, life, has)
    assert (found.ensure, found.wait) == (ensure, wait)
    assert bool(found.refuse) == (not ensure and wait is None)


def test_a_name_in_the_record_has_an_owner() -> None:
    mine = row()
    assert names_in([entry(mine, A)], KIND) == [Found(MEMORY, IDS, mine.nonce, A)]


@pytest.mark.parametrize(
    "strange",
    [
        entry(row(), A, "nvidia.com/gpu"),
        entry(row(), Owner("", "main")),
        replace(entry(row(), A), ids=frozenset({"mem-00007"})),
        replace(entry(row(), A), resource=CORES),
        replace(entry(row(), A), cdi_names=()),
        replace(entry(row(), A), cdi_names=(f"{KIND}=", KIND, "", f"{KIND}=../../etc")),
    ],
    ids=["of another vendor", "no pod", "of other devices", "of another resource", "no name", "no names"],
)
def test_what_is_no_name_of_ours_says_nothing(strange: Entry) -> None:
    assert names_in([strange], KIND) == []


def test_a_bound_name_stays_with_its_owner() -> None:
    bound = row(A)
    new, strange = news([bound], names_in([entry(bound, B)], KIND))
    assert new == []
    assert "stays with the first" in strange[0]
    assert news([bound], names_in([entry(bound, A)], KIND)) == ([], [])


def test_what_everything_belongs_behind() -> None:
    memory, cores = row(A), row(A, 2, frozenset({"core-000"}), CORES)
    other = row(B, 3)
    assert names_of([memory, cores, other], A, MEMORY) == {memory.name: True, cores.name: False}
    assert names_of([cores, other], A, MEMORY) == {cores.name: True}
    assert names_of([other], A, MEMORY) == {}


def test_devices_in_two_living_hands_are_told() -> None:
    everyone = lives(uid_a="living", uid_b="living")
    overlapping = row(B, 2, frozenset({"mem-00001", "mem-00002"}))
    assert twice([row(A), overlapping], everyone) == [(A, B)]
    assert twice([row(A), overlapping], lives(uid_a="ended", uid_b="living")) == []
    handed_on = row(Owner("uid-a", "prepare"), 2)
    assert twice([row(A), handed_on], everyone) == []


UIDS = ["uid-a", "uid-b", "uid-c", "uid-d"]
DEVICES = [frozenset({"mem-00000"}), frozenset({"mem-00000", "mem-00001"}), IDS]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Allocation], dict[str, Owner], dict[str, Life], set[Owner]]:
    """Allocations, of which the record knows some; the truth of whose each is; pods; slots."""
    truth: dict[str, Owner] = {}
    rows = []
    for number in range(draw(st.integers(0, 8))):
        made = row(None, number, draw(st.sampled_from(DEVICES)))
        truth[made.nonce] = Owner(draw(st.sampled_from(UIDS)), draw(st.sampled_from(["main", "side"])))
        rows.append(made)
    life = {uid: draw(st.sampled_from(list(Life))) for uid in UIDS}
    has = {owner for owner in truth.values() if draw(st.booleans())}
    return rows, truth, life, has


@given(worlds(), st.data())
def test_nobody_is_ever_answered_for_by_anothers_name(
    world: tuple[list[Allocation], dict[str, Owner], dict[str, Life], set[Owner]], data: st.DataObject
) -> None:
    rows, truth, life, has = world
    known = [each for each in rows if data.draw(st.booleans())]
    record = data.draw(st.permutations([entry(each, truth[each.nonce]) for each in known]))
    new, strange = news(rows, names_in(record, KIND))
    assert strange == []
    bound = {each.nonce: each.owner for each in new}
    assert bound == {each.nonce: truth[each.nonce] for each in known}
    after = [
        replace(each, uid=bound[each.nonce].uid, container=bound[each.nonce].container)
        if each.nonce in bound
        else each
        for each in rows
    ]
    for ids in DEVICES:
        asked = [each for each in reversed(after) if each.ids == ids]
        found = answer(asked, lambda owner: life[owner.uid], has.__contains__)
        owners = {truth[each.nonce] for each in asked if each.bound}
        living = {owner for owner in owners if life[owner.uid] is Life.LIVING}
        # whoever lives and is known is answered for, and nobody who has ended
        assert living <= set(found.ensure) <= owners
        assert all(life[owner.uid] is not Life.ENDED for owner in found.ensure)
        assert found.wait is None or life[found.wait.uid] is Life.UNKNOWN
        assert (found == Answer(refuse=found.refuse)) == (not found.ensure and found.wait is None)
        for owner in found.ensure:
            mine = names_of(after, owner, MEMORY)
            assert set(mine) <= {each.name for each in rows if truth[each.nonce] == owner}
            assert list(mine.values()).count(True) >= 1
