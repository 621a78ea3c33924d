"""Each rule is needed: whichever is left out, the search shows what goes wrong without it."""

from __future__ import annotations

import pytest

from tests.model.rules import Rules, sentences
from tests.model.search import search
from tests.model.stories import NAME, NOT_NEEDED, SHORT, WHERE, story


@pytest.mark.parametrize("rule", WHERE)
def test_what_is_left_out_is_found(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = search(story(WHERE[rule]), Rules().without(rule))
    assert found.sentence, f"nobody would notice that this is not kept: {sentences()[rule]}"
    with capsys.disabled():
        print(
            f"\n  without {rule}: {found.states} states, {len(found.trace) - 1} steps: {found.sentence}",
            end=" ",
        )


def test_every_rule_has_a_story() -> None:
    assert WHERE.keys() | NOT_NEEDED.keys() == sentences().keys()


@pytest.mark.parametrize("rule", NOT_NEEDED)
def test_what_is_said_not_to_be_needed_is_not(rule: str) -> None:
    found = [search(each, Rules().without(rule)) for each in SHORT if each is not NAME]
    assert not any(each.sentence for each in found), "\n".join(map(str, found))
