"""An agent at the protocol level: the operator socket's HTTP, with cards that only exist on paper.

Run as a program it serves until it is told to end: ``python hub_fake_agent.py SOCKET [CARDS]``.
"""

from __future__ import annotations

import os
import select
import signal
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote

import msgspec

from gaia_plugin.api.models import (
    Amounts,
    CardView,
    Fit,
    Health,
    MadeSlot,
    NewSlot,
    Owner,
    Problem,
    Slot,
    SlotCard,
)
from gaia_plugin.errors import HTTP_STATUS, Code, Refusal
from gaia_plugin.units import (
    CORES_PER_CARD,
    GIB,
    MEMORY_UNIT,
    format_memory,
    parse_cores,
    parse_memory,
    units_up,
)

CAPACITY = 94 * MEMORY_UNIT


class PaperNode:
    """First fit on cards of 23.5 GiB."""

    def __init__(self, directory: Path, cards: int = 2, name: str = "NVIDIA Sim 24GB") -> None:
        self.directory = directory
        self.names = [name] * cards
        self.slots: dict[str, Slot] = {}
        self.lock = threading.RLock()
        self.grants = threading.Event()
        """Whoever asks for a slot waits until this is set."""
        self.grants.set()

    def _free(self, index: int) -> Amounts:
        on = [slot for slot in self.slots.values() if slot.cards[0].index == index]
        return Amounts(
            memory=CAPACITY - sum(slot.held.memory for slot in on),
            cores=CORES_PER_CARD - sum(slot.held.cores for slot in on),
        )

    def cards(self) -> list[CardView]:
        return [
            CardView(
                uuid=f"GPU-{index:08d}",
                index=index,
                name=name,
                healthy=True,
                total=Amounts(memory=CAPACITY, cores=CORES_PER_CARD),
                free=self._free(index),
                used=0,
                slots=tuple(slot.slot for slot in self.slots.values() if slot.cards[0].index == index),
            )
            for index, name in enumerate(self.names)
        ]

    def _place(self, wish: NewSlot) -> tuple[int, Amounts]:
        cores = CORES_PER_CARD if wish.cores is None else parse_cores(wish.cores)
        memory = CAPACITY if wish.memory is None else units_up(parse_memory(wish.memory)) * MEMORY_UNIT
        best = max((self._free(index) for index in range(len(self.names))), key=lambda free: free.memory)
        for index in range(len(self.names)):
            free = self._free(index)
            if memory <= free.memory and cores <= free.cores:
                return index, Amounts(memory=memory, cores=cores)
        raise Refusal(
            Code.CARD_FULL,
            f"Only {format_memory(best.memory)} and {best.cores} % are free on one card.",
            best_memory=best.memory,
            best_cores=best.cores,
        )

    def fit(self, wish: NewSlot) -> Fit:
        try:
            self._place(wish)
        except Refusal as refusal:
            return Fit(fits=False, reason=refusal.sentence)
        return Fit(fits=True)

    def make(self, wish: NewSlot) -> MadeSlot:
        key = f"{wish.owner}--{wish.name}" if wish.name else wish.owner
        if key in self.slots:
            raise Refusal(Code.SLOT_EXISTS, f"There is a slot {key} already.")
        index, amounts = self._place(wish)
        card = SlotCard(
            uuid=f"GPU-{index:08d}",
            index=index,
            name=self.names[index],
            requested=amounts,
            granted=amounts,
            held=amounts,
            used=0,
            free_on_card=self._free(index),
        )
        slot = Slot(
            slot=key,
            owner=wish.owner,
            name=wish.name,
            generation=1,
            state="applied",
            compute=wish.compute,
            requested=amounts,
            granted=amounts,
            held=amounts,
            used=0,
            maximum=Amounts(memory=24 * GIB, cores=100),
            could_reach=amounts,
            cards=(card,),
            processes=(),
            message="",
        )
        self.slots[key] = slot
        lib = self.directory / "slots" / key / "lib"
        environment = {
            "LD_LIBRARY_PATH": str(lib),
            "GAIA_SLOT_SOCKET": str(lib.parent / "agent.sock"),
            "CUDA_VISIBLE_DEVICES": card.uuid,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        }
        return MadeSlot(slot=slot, directory=str(lib.parent), environment=environment)

    def _existing(self, key: str) -> Slot:
        if key not in self.slots:
            raise Refusal(Code.NO_SUCH_SLOT, f"There is no slot {key}.")
        return self.slots[key]

    def release(self, key: str) -> Slot:
        slot = self._existing(key)
        del self.slots[key]
        return slot

    def own(self, key: str, pid: int) -> Slot:
        slot = self._existing(key)
        descriptor = os.pidfd_open(pid)

        def wait() -> None:
            select.select([descriptor], [], [])
            os.close(descriptor)
            with self.lock:
                self.slots.pop(key, None)

        threading.Thread(target=wait, daemon=True).start()
        return slot

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        parts = [unquote(part) for part in path.strip("/").split("/")][1:]
        if (method, parts) == ("POST", ["slots"]):
            self.grants.wait()
        with self.lock:
            match (method, *parts):
                case ("GET", "healthz"):
                    where = str(self.directory)
                    return 200, Health(
                        pid=os.getpid(), version="0", driver="", state=where, slots=len(self.slots)
                    )
                case ("GET", "cards"):
                    return 200, self.cards()
                case ("GET", "slots"):
                    return 200, list(self.slots.values())
                case ("POST", "slots"):
                    return 201, self.make(msgspec.json.decode(body, type=NewSlot))
                case ("POST", "fit"):
                    return 200, [self.fit(wish) for wish in msgspec.json.decode(body, type=list[NewSlot])]
                case ("GET", "slots", key):
                    return 200, self._existing(key)
                case ("DELETE", "slots", key):
                    return 200, self.release(key)
                case ("PUT", "slots", key, "process"):
                    return 200, self.own(key, msgspec.json.decode(body, type=Owner).process)
        raise Refusal(Code.BAD_REQUEST, f"{method} {path} is nothing this agent knows.")


class FakeAgent:
    """Serves a `PaperNode` on a unix socket in threads of this process."""

    def __init__(self, socket: Path, cards: int = 2, name: str = "NVIDIA Sim 24GB") -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        self.socket = socket
        self.node = node = PaperNode(socket.parent, cards, name)

        class Handler(BaseHTTPRequestHandler):
            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    status, value = node.answer(self.command, self.path, body)
                except Refusal as refusal:
                    status = HTTP_STATUS[refusal.code]
                    value = Problem(
                        type=f"gaia:{refusal.code}",
                        title="refused",
                        status=status,
                        detail=refusal.sentence,
                        code=refusal.code,
                    )
                content = msgspec.json.encode(value)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _do

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "unix"

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(str(socket), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.socket.unlink(missing_ok=True)

    def __enter__(self) -> FakeAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


if __name__ == "__main__":
    with FakeAgent(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2):
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
