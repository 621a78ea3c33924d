"""The CDI specs of slots, put together from slot directory and driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gaia_plugin.ledger import SlotRecord
from gaia_plugin.slots.cdi.driver import Driver
from gaia_plugin.slots.cdi.files import SpecFiles
from gaia_plugin.slots.cdi.model import Spec
from gaia_plugin.slots.cdi.spec import part
from gaia_plugin.slots.container import ContainerDirectories

_CARDS: Final = "CUDA_VISIBLE_DEVICES="


class SlotSpecs:
    """Writes and removes the specs of slots. Implements `gaia_plugin.agent.pods.ports.Specs`.

    Args:
        files: where they lie.
        directories: of the slots.
        driver: what containers need of this machine's driver.
    """

    def __init__(self, files: SpecFiles, directories: ContainerDirectories, driver: Driver) -> None:
        self._files = files
        self._directories = directories
        self._driver = driver
        files.tidy()

    def write(self, record: SlotRecord, names: Mapping[str, bool]) -> None:
        """Put what the slot's container gets behind its names, in place of whatever is there.

        Raises:
            OSError, Unusable: it cannot be written, or the driver is not whole.
        """
        if not names:
            return
        driver = self._driver.edits([each.card for each in record.slices])
        whole = self._directories.edits(record, driver)
        for name, everything in names.items():
            self._files.write(name, whole if everything else part(name[:16]), record.owner)

    def remove(self, names: Iterable[str]) -> None:
        """Take names away; one that is not there is no fault."""
        for name in names:
            self._files.remove(name)

    def listed(self) -> Mapping[str, str]:
        """Return the UID that each spec of ours was made for, by name."""
        return {spec.name: spec.owner for spec in self._files.listed()}

    def cards(self, name: str, owner: str) -> list[str]:
        """Return the cards that a name gives, if its spec is there and was made for this UID."""
        if self._files.owner(name) != owner:
            return []
        for path in self._files.directory.glob(f"*_{name}.json"):
            try:
                spec = msgspec.json.decode(path.read_bytes(), type=Spec)
            except (OSError, msgspec.MsgspecError):
                continue
            for edits in spec.edits():
                for variable in edits.env:
                    if variable.startswith(_CARDS):
                        return variable.removeprefix(_CARDS).split(",")
        return []
