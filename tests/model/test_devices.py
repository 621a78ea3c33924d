"""An ID in use stays usable, and what the kubelet believes to be free is free."""

from __future__ import annotations

import pytest

from tests.model.devices import ID_RULES, IdRules, search_ids


def test_ids_in_use_stay_and_free_ids_are_free(capsys: pytest.CaptureFixture[str]) -> None:
    found = search_ids(IdRules())
    with capsys.disabled():
        print(f"\n  {found}", end=" ")
    assert not found.sentence, str(found)


@pytest.mark.parametrize("rule", ID_RULES)
def test_what_is_left_out_is_found(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = search_ids(IdRules().without(rule))
    assert found.sentence, f"nobody would notice that this is not kept: {ID_RULES[rule]}"
    with capsys.disabled():
        print(
            f"\n  without {rule}: {found.states} states, {len(found.trace) - 1} steps: {found.sentence}",
            end=" ",
        )
