"""XIDs, as NVML tells of them: the driver's own numbers for what befell a card."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from typing import Any, Final

from gaia_plugin.gpu.card import Xid
from gaia_plugin.gpu.library import Library

_log = logging.getLogger(__name__)

_XID_CRITICAL: Final = 8
_TIMEOUT: Final = 10


class Events:
    """An event set of one driver; for one thread.

    Args:
        library: loaded.

    Raises:
        NVMLError: this driver has no events.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._nvml = library.pynvml
        self._set = self._nvml.nvmlEventSetCreate()
        self._watched: dict[int | None, str] = {}
        self._refused: set[str] = set()

    def close(self) -> None:
        """Give the set back."""
        try:
            self._nvml.nvmlEventSetFree(self._set)
        except self._library.error:
            return

    def watch(self, handles: Mapping[str, Any]) -> bool:
        """Hear of these cards, by UUID, from now on; one that was gone is registered again.

        Return whether any of them will be heard of; with none, a wait would not wait.
        """
        known = set(self._watched.values())
        for uuid in known - set(handles):
            self._watched = {key: value for key, value in self._watched.items() if value != uuid}
        for uuid in set(handles) - known - self._refused:
            try:
                self._nvml.nvmlDeviceRegisterEvents(handles[uuid], _XID_CRITICAL, self._set)
            except self._library.error as trouble:
                _log.warning("the driver does not tell of faults of card %s: %s", uuid, trouble)
                self._refused.add(uuid)
            else:
                self._watched[_address(handles[uuid])] = uuid
        self._refused &= set(handles)
        return bool(self._watched)

    def wait(self, seconds: float) -> Xid | None:
        """Return the next XID; None when there was none for so long.

        Its UUID is empty where the driver does not say which card it befell.

        Raises:
            NVMLError: the driver does not tell any more.
        """
        try:
            data = self._nvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
        except self._library.error as trouble:
            if self._library.code(trouble) == _TIMEOUT:
                return None
            raise
        if data.eventType != _XID_CRITICAL:
            return None
        return Xid(self._watched.get(_address(data.device), ""), int(data.eventData))


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
