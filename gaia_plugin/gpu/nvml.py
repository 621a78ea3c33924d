"""The cards as NVML tells of them, by UUID.

NVML's bad habits are dealt with here: functions that older drivers lack, figures that are "not
available" (which is not a number), cards that fall off the bus while others work on.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu.card import Card, Use, Xid
from gaia_plugin.gpu.events import Events
from gaia_plugin.gpu.library import Library
from gaia_plugin.gpu.links import Station, bus_text, read_topology
from gaia_plugin.gpu.topology import Topology

_log = logging.getLogger(__name__)

_NOT_SUPPORTED: Final = 3
_NOT_FOUND: Final = 6
_INSUFFICIENT_SIZE: Final = 7
_NO_FIGURE: Final = 0xFFFF_FFFF_FFFF_FFFF
_NUMA_WORDS: Final = 16
"""Words of 64 NUMA nodes; more than any kernel is built for."""


class _ProcessInfoV1(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong))


class _ProcessInfoV2(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Utilisation(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("at", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    )


_PROCESS_LISTS: Final = (("_v3", _ProcessInfoV2), ("_v2", _ProcessInfoV2), ("", _ProcessInfoV1))
"""The versions of NVML's process lists, newest first: the function's suffix and its entries."""


@dataclass(frozen=True, slots=True)
class _Memory:
    total: int
    reserved: int
    used: int


class Nvml:
    """The cards of one driver; a `Gpus`. Close it, or use it in a ``with``.

    Args:
        driver_dir: the directory with libnvidia-ml.so.1, of a real driver or the simulated one;
            None: the system's driver.

    Raises:
        Unusable: there is no driver there, or it does not start; the sentence says what to do.
    """

    def __init__(self, driver_dir: Path | None = None) -> None:
        self._library = Library(driver_dir)
        self._nvml = self._library.pynvml
        self._handles: dict[str, Any] = {}
        self._known: dict[str, Card] = {}
        self._events: Events | None = None
        self.cards()

    def __enter__(self) -> Nvml:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give NVML back; nobody may be waiting for an XID any more."""
        self._end_events()
        self._library.close()

    def cards(self) -> tuple[Card, ...]:
        """List the cards by index; one seen earlier that is gone now stays, not healthy."""
        handles: dict[str, Any] = {}
        found: dict[str, Card] = {}
        for index, handle in self._enumerate():
            card = self._card(index, handle)
            if card is not None:
                handles[card.uuid], found[card.uuid] = handle, card
        for uuid, known in self._known.items():
            if uuid not in found:
                found[uuid] = replace(known, healthy=False, trouble="the driver has lost it")
        self._handles, self._known = handles, found
        return tuple(sorted(found.values(), key=lambda card: (card.index, card.uuid)))

    def topology(self) -> Topology:
        """Tell how closely each two of the cards that answer are linked."""
        stations = {
            uuid: Station(handle, self._known[uuid].pci_bus_id, self._known[uuid].numa)
            for uuid, handle in self._handles.items()
        }
        return read_topology(self._library, stations)

    def memory_used(self, uuid: str) -> int:
        """Return the bytes in use on a card, without the driver's reserve where that is told apart.

        Raises:
            Refusal: ``no_such_card``; ``unavailable`` where the card or the figure is lost.
        """
        try:
            return self._memory(self._handle(uuid)).used
        except self._library.error as trouble:
            raise self._unavailable(uuid, trouble) from None

    def processes(self, uuid: str) -> dict[int, int | None]:
        """Return bytes by host pid of the processes that compute on a card, MPS clients included.

        None is "no figure". A process that is listed twice counts with its larger figure.

        Raises:
            Refusal: ``no_such_card``; ``unavailable`` where the driver keeps no such list: that is
                not the same as an empty one.
        """
        handle = self._handle(uuid)
        try:
            found = self._process_list("nvmlDeviceGetComputeRunningProcesses", handle)
        except self._library.error as trouble:
            raise self._unavailable(uuid, trouble) from None
        try:
            clients = self._process_list("nvmlDeviceGetMPSComputeRunningProcesses", handle)
        except self._library.error:
            clients = {}  # Most drivers have no MPS to tell of.
        for pid, used in clients.items():
            known = found.get(pid)
            found[pid] = used if known is None else max(known, used or 0)
        return found

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        """Return the samples of processes' use of a card that are younger than `since`.

        Raises:
            Refusal: ``no_such_card``; ``unavailable`` where the driver keeps no such figures.
        """
        handle = self._handle(uuid)
        function = self._library.function("nvmlDeviceGetProcessUtilization")
        try:
            if function is None:
                raise self._nvml.NVMLError(_NOT_SUPPORTED)
            return self._read_use(function, handle, since)
        except self._library.error as trouble:
            raise self._unavailable(uuid, trouble) from None

    def xid(self, seconds: float) -> Xid | None:
        """Return the next fault of a card that was listed; None when there was none for so long.

        For one thread, which may be another one than that of the other methods.

        Raises:
            Refusal: ``unavailable``, this driver does not tell of faults.
        """
        try:
            if self._events is None:
                self._events = Events(self._library)
            if self._events.watch(self._handles):
                return self._events.wait(seconds)
        except self._library.error as trouble:
            self._end_events()  # and begin anew the next time
            raise Refusal(
                Code.UNAVAILABLE, f"The driver does not tell of faults of its cards: {trouble}."
            ) from None
        raise Refusal(Code.UNAVAILABLE, "The driver tells of faults of none of its cards.")

    def _end_events(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._known:
            raise Refusal(Code.NO_SUCH_CARD, f"There is no card {uuid} on this machine.")
        if uuid not in self._handles:
            raise self._unavailable(uuid, "the driver has lost it")
        return self._handles[uuid]

    def _unavailable(self, uuid: str, why: object) -> Refusal:
        name = self._known[uuid].name
        return Refusal(Code.UNAVAILABLE, f"Card {uuid} ({name}) gives no figures: {why}.")

    def _enumerate(self) -> Iterator[tuple[int, Any]]:
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except self._library.error as trouble:
            _log.warning("NVML does not count the cards: %s", trouble)
            return
        for index in range(count):
            try:
                yield index, nvml.nvmlDeviceGetHandleByIndex(index)
            except self._library.error as trouble:
                _log.warning("the card with NVML index %d does not answer: %s", index, trouble)

    def _card(self, index: int, handle: Any) -> Card | None:
        """Read one card; None if it does not even tell its UUID, without which nothing can be kept."""
        nvml = self._nvml
        try:
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        except self._library.error as trouble:
            _log.warning("the card with NVML index %d does not tell its UUID: %s", index, trouble)
            return None
        trouble_text = ""
        known = self._known.get(uuid)
        try:
            memory = self._memory(handle)
            trouble_text = self._mig_trouble(handle) if memory.total else "the driver tells no memory size"
        except self._library.error as trouble:
            trouble_text = f"the driver says: {trouble}"
            memory = _Memory(known.memory_total, known.memory_reserved, 0) if known else _Memory(0, 0, 0)
        return Card(
            uuid=uuid,
            index=index,
            name=self._name(handle) or (known.name if known else "unknown"),
            memory_total=memory.total,
            memory_reserved=memory.reserved,
            pci_bus_id=self._bus(handle) or (known.pci_bus_id if known else ""),
            numa=self._numa(handle),
            healthy=not trouble_text,
            trouble=trouble_text,
        )

    def _name(self, handle: Any) -> str:
        try:
            return _text(self._nvml.nvmlDeviceGetName(handle))
        except self._library.error:
            return ""

    def _bus(self, handle: Any) -> str:
        try:
            return bus_text(self._nvml.nvmlDeviceGetPciInfo_v3(handle).busId)
        except self._library.error:
            return ""

    def _numa(self, handle: Any) -> int | None:
        """Return the lowest NUMA node near the card.

        nvmlDeviceGetNumaNodeId is something else: the node that a card's own memory forms.
        """
        nvml = self._nvml
        try:
            words = nvml.nvmlDeviceGetMemoryAffinity(handle, _NUMA_WORDS, nvml.NVML_AFFINITY_SCOPE_NODE)
        except self._library.error:
            return None
        mask = sum(word << (64 * place) for place, word in enumerate(words))
        return (mask & -mask).bit_length() - 1 if mask else None

    def _mig_trouble(self, handle: Any) -> str:
        """Say so if a card is cut by MIG: its instances have UUIDs of their own, the whole none to use."""
        try:
            current, _pending = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._library.error:
            return ""
        return "it is in MIG mode, which Gaia does not share further" if current else ""

    def _memory(self, handle: Any) -> _Memory:
        """Read a card's memory; drivers before 510 do not tell the reserve apart: 0 then."""
        nvml = self._nvml
        try:
            told = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
            return _Memory(int(told.total), int(told.reserved), int(told.used))
        except self._library.error:
            told = nvml.nvmlDeviceGetMemoryInfo(handle)  # A lost card fails here again.
            return _Memory(int(told.total), 0, int(told.used))

    def _process_list(self, name: str, handle: Any) -> dict[int, int | None]:
        """Read one of NVML's process lists in the newest version there is."""
        for suffix, entry in _PROCESS_LISTS:
            function = self._library.function(name + suffix)
            if function is not None:
                return self._read_list(function, handle, entry)
        raise self._nvml.NVMLError(_NOT_SUPPORTED)

    def _read_list(self, function: Any, handle: Any, entry: type[Any]) -> dict[int, int | None]:
        room = 64
        for _attempt in range(8):  # Processes may start between two calls, but not for ever.
            count = ctypes.c_uint(room)
            entries = (entry * room)()
            code = function(handle, ctypes.byref(count), entries)
            if code == _NOT_FOUND:
                return {}
            if code == _INSUFFICIENT_SIZE:
                room = 2 * max(room, count.value)
                continue
            if code:
                raise self._nvml.NVMLError(code)
            listed = entries[: min(count.value, room)]
            return {int(one.pid): None if one.used == _NO_FIGURE else int(one.used) for one in listed}
        raise self._nvml.NVMLError(_INSUFFICIENT_SIZE)

    def _read_use(self, function: Any, handle: Any, since: int) -> tuple[Use, ...]:
        room = 128
        for _attempt in range(8):
            count = ctypes.c_uint(room)
            entries = (_Utilisation * room)()
            code = function(handle, entries, ctypes.byref(count), ctypes.c_ulonglong(since))
            if code == _NOT_FOUND:
                return ()
            if code == _INSUFFICIENT_SIZE:
                room = 2 * max(room, count.value)
                continue
            if code:
                raise self._nvml.NVMLError(code)
            # some drivers fill the rest of the buffer with zeros and count it
            return tuple(
                Use(int(one.pid), int(one.at), min(1000, 10 * int(one.sm)))
                for one in entries[: min(count.value, room)]
                if one.pid and one.at > since
            )
        raise self._nvml.NVMLError(_INSUFFICIENT_SIZE)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
