"""`gaia slots --watch` into a file: a table per look, and one look per second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.commands import slots
from gaia_plugin.errors import Unusable


@pytest.mark.parametrize("json", [False, True])
def test_one_look_at_the_start_and_one_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], json: bool
) -> None:
    looks: list[Any] = []
    seconds = iter([None, None])

    def look(state: Path | None) -> list[Any]:
        looks.append(state)
        if len(looks) == 2:
            raise Unusable("No agent is [running].")
        return []

    def sleep(_: float) -> None:
        if next(seconds, KeyboardInterrupt) is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(slots, "_look", look)
    monkeypatch.setattr(slots.time, "sleep", sleep)
    slots.slots(state=None, json=json, watch=True)
    assert len(looks) == 3
    expected = ["[]"] * 3 if json else [slots.NONE, "No agent is [running].", slots.NONE]
    assert capsys.readouterr().out.splitlines() == expected
