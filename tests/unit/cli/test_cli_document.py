"""`docs/reference/commands.md` names every field that `--json` prints, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from gaia_plugin.api import models
from gaia_plugin.commands.nodes import NodeCard, NodeView

PAGE = Path(__file__).parents[3] / "docs/reference/commands.md"
SHOWN: tuple[type[msgspec.Struct], ...] = (
    *(models.Slot, models.SlotCard, models.Process, models.SlotTime, models.CardTime),
    *(models.CardView, models.Resized, models.Amounts),
    *(models.Explained, models.ContainerReason, models.CardReason, models.CardHolder, models.LastRefusal),
    *(NodeView, NodeCard),
)


def documented(name: str) -> set[str]:
    """Return the fields that the page's table of a type has."""
    text = PAGE.read_text()
    found = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{PAGE} has no section {name}"
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", found[1], re.MULTILINE)
    return {field for row in rows for field in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__name__)
def test_the_page_has_every_field_and_no_other(kind: type[msgspec.Struct]) -> None:
    assert documented(kind.__name__) == set(kind.__struct_fields__)
