"""The agent's side of compute shares, as the agent runs it: its own step and its own reader of the driver.

Only ledger and sockets are left out: the slots of a benchmark are written down here.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

from gaia_plugin.agent.compute import EVERY, Compute
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.gpu.nvml import Nvml
from gaia_plugin.ledger import SliceRecord, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots import pages
from gaia_plugin.slots.directory import SlotDirectories
from tests.c.computebench import Slot
from tests.c.slotbench import Bench


def record(bench: Bench, name: str, cores: int, mode: str) -> SlotRecord:
    """A slot on the bench's first card, as the ledger would have it."""
    share = Share(4, cores)
    part = SliceRecord(bench.uuids[0], share, share, share)
    return SlotRecord(name, name, "", 1, False, mode, Share(94, 100), (part,), None, None, time.time())


class Agent:
    """Divides a card's time among its slots while it is entered.

    Args:
        bench: the machine with the card.
        slots: guarantee in cores and mode ("hard", "elastic") by name.
    """

    def __init__(self, bench: Bench, slots: dict[str, tuple[int, str]]) -> None:
        self._bench = bench
        self._records = [record(bench, name, *each) for name, each in slots.items()]
        self._directories = SlotDirectories(bench.root, Path("unused"))
        for each in self._records:
            self._make(each)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent")

    def _make(self, slot: SlotRecord) -> None:
        path = self._bench.root / "slots" / slot.slot
        path.mkdir(exist_ok=True)
        if not (path / "lib").exists():
            (path / "lib").symlink_to("../../lib")
        pages.create_usage(path / "usage")
        self._directories.store(slot)

    @property
    def slots(self) -> list[Slot]:
        """The slots, in which programs can be started."""
        return [Slot(self._bench, each.slot) for each in self._records]

    def rates(self) -> list[float]:
        """The rates in force, in percent."""
        card = self._bench.uuids[0]
        return [self._directories.rates(each.slot)[card] / 1e4 for each in self._records]

    def _run(self) -> None:
        with Nvml(self._bench.root / "driver") as gpus:
            gauge = Gauge(gpus)
            compute = Compute(self._directories, gauge)
            while not self._over.wait(EVERY):
                for each in self._records:
                    self._directories.heartbeat(each.slot)
                compute.step(self._records)
            while gauge.waiting:  # before the driver is given back
                time.sleep(0.01)

    def __enter__(self) -> Agent:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._directories.close()
