"""With every rule kept, no story has a counterexample, and every state can come to the quiet end."""

from __future__ import annotations

import pytest

from tests.model.rules import Rules
from tests.model.search import search
from tests.model.state import Story
from tests.model.stories import LONG, SHORT


@pytest.mark.parametrize("story", SHORT, ids=lambda story: story.name)
def test_nothing_is_given_twice_lost_or_booked_for_ever(
    story: Story, capsys: pytest.CaptureFixture[str]
) -> None:
    _nothing_found(story, capsys)


@pytest.mark.long
@pytest.mark.parametrize("story", LONG, ids=lambda story: story.name)
def test_nor_within_larger_bounds(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    _nothing_found(story, capsys)


def _nothing_found(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    found = search(story, Rules())
    with capsys.disabled():
        print(f"\n  {found}", end=" ")
    assert not found.sentence, str(found)
