"""The Python half of the panel: shows it, answers where there is no server page, and can be called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import msgspec
import traitlets
from IPython.display import display

from gaia_hub.server.place import NO_SLICE, slot_socket
from gaia_hub.server.problems import problem
from gaia_plugin.api.client import SlotClient
from gaia_plugin.api.models import Resized, Slot
from gaia_plugin.errors import Code, Refusal

_HERE = Path(__file__).parent


class Panel(anywidget.AnyWidget):
    """Show the slice of this notebook; put it last in a cell.

    In JupyterLab and Notebook the page asks the Jupyter server, also while a cell runs. Elsewhere
    (VS Code) it asks this object, which answers when the kernel is free.

    Args:
        socket: the slot's socket; by default that of the slot in which the kernel runs.
    """

    _esm = "".join((_HERE / name).read_text() for name in ("source.js", "history.js", "panel.js"))
    _css = (_HERE / "panel.css").read_text()
    _has_slot = traitlets.Bool(False).tag(sync=True)

    def __init__(self, socket: str | Path | None = None) -> None:
        self._socket = slot_socket() if socket is None else Path(socket)
        super().__init__(_has_slot=self._socket is not None)
        self.on_msg(self._heard)

    @property
    def slot(self) -> Slot:
        """Return the slice as it stands: bytes of memory, cores in percent of one card.

        Raises:
            Refusal: there is no slice (``no_such_slot``), or the agent is away (``unavailable``).
        """
        return self._client().slot()

    def resize(self, memory: str | int | None = None, cores: int | None = None) -> Resized:
        """Set the totals; what is left out stays as it is. Return the answer with its sentence.

        Args:
            memory: text with a unit (``"8GiB"``), or bytes.
            cores: percent of one card.

        Raises:
            Refusal: with a sentence, and `best_memory` and `best_cores` where another amount would do.
        """
        return self._client().resize(memory=memory, cores=cores)

    def _client(self) -> SlotClient:
        if self._socket is None:
            raise Refusal(Code.NO_SUCH_SLOT, NO_SLICE)
        return SlotClient(self._socket)

    def _heard(self, _widget: object, asked: dict[str, Any], _buffers: object) -> None:
        try:
            answer: Slot | Resized
            if asked.get("method") == "PATCH":
                wish, generation = asked["wish"], asked.get("generation")
                answer = self._client().resize(wish.get("memory"), wish.get("cores"), generation)
            else:
                answer = self._client().slot()
            status, body = 200, msgspec.to_builtins(answer)
        except Refusal as refusal:
            said = problem(refusal)
            status, body = said.status, msgspec.to_builtins(said)
        self.send({"id": asked.get("id"), "status": status, "body": body})


def show(socket: str | Path | None = None) -> None:
    """Display a panel, from anywhere in a cell."""
    display(Panel(socket))  # type: ignore[no-untyped-call]
