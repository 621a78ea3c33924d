"""The toolkit's spec may appear after the agent has started, as it does late in a boot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.slots.cdi.driver import DriverEdits
from gaia_plugin.slots.cdi.find import LatestDriver
from gaia_plugin.slots.cdi.model import ContainerEdits


class Played:
    """A driver that says which look found it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def edits(self, cards: Sequence[str]) -> DriverEdits:
        return DriverEdits(ContainerEdits(env=(f"FOUND={self.number}",)), (), {})


class Looks:
    """Looks for a driver, and fails when it is told to."""

    def __init__(self) -> None:
        self.number, self.fault = 0, ""

    def __call__(self) -> Played:
        self.number += 1
        if self.fault:
            raise Unusable(self.fault)
        return Played(self.number)


def found(driver: LatestDriver) -> str:
    return driver.edits(("GPU-0",)).edits.env[0]


def test_it_is_looked_for_again_when_a_spec_of_the_toolkit_appears_changes_or_goes(tmp_path: Path) -> None:
    looks = Looks()
    driver = LatestDriver(looks, [tmp_path / "nowhere", tmp_path])
    assert found(driver) == found(driver) == "FOUND=1"
    (tmp_path / "gaia.io-slot_a.json").write_text("{}")
    assert found(driver) == "FOUND=1"
    (tmp_path / "nvidia.yaml").write_text("{}")
    assert found(driver) == found(driver) == "FOUND=2"
    (tmp_path / "nvidia.new").write_text("{ }")
    (tmp_path / "nvidia.new").replace(tmp_path / "nvidia.yaml")
    assert found(driver) == "FOUND=3"
    (tmp_path / "nvidia.yaml").unlink()
    assert found(driver) == "FOUND=4"


def test_a_spec_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    looks = Looks()
    driver = LatestDriver(looks, [tmp_path])
    looks.fault = "The CDI spec is not one."
    (tmp_path / "nvidia.yaml").write_text("{")
    assert found(driver) == "FOUND=1"
    with pytest.raises(Unusable):
        LatestDriver(looks, [tmp_path])
