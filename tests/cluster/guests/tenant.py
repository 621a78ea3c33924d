"""What a tenant's program does with its slice: takes memory through libcuda.so.1, asks over its socket.

In a pod: `python -c "from tenant import *; ..."` with this folder in PYTHONPATH.
"""

import ctypes
import http.client
import json
import os
import signal
import socket

MIB = 1 << 20
GIB = 1 << 30
OUT_OF_MEMORY = 2
SOCKET = "/run/gaia/agent.sock"


class Card:
    """A context on one of the cards that CUDA shows."""

    def __init__(self, index: int = 0) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self._taken: list[int] = []
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self.cuda.cuInit(0))
        self._check(self.cuda.cuDeviceGet(ctypes.byref(device), index))
        self._check(self.cuda.cuCtxCreate_v2(ctypes.byref(self._context), 0, device))

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"CUDA error {code}")

    @staticmethod
    def all() -> "dict[int, Card]":
        """Return the cards on which a context can be made, by index; each of the others must refuse one."""
        cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        Card._check(cuda.cuInit(0))
        Card._check(cuda.cuDeviceGetCount(ctypes.byref(count)))
        found = {}
        for index in range(count.value):
            try:
                found[index] = Card(index)
            except RuntimeError as error:
                if error.args != (f"CUDA error {OUT_OF_MEMORY}",):
                    raise
        return found

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value, total.value

    @property
    def total(self) -> int:
        """Bytes that CUDA says the card has."""
        return self.memory()[1]

    def take(self, size: int) -> int:
        """Allocate; return CUDA's error, 0 for none."""
        pointer = ctypes.c_uint64()
        code: int = self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        if code == 0:
            self._taken.append(pointer.value)
        return code

    def give_back(self) -> None:
        """Free what was allocated last."""
        self._check(self.cuda.cuMemFree_v2(ctypes.c_uint64(self._taken.pop())))

    def fill(self) -> list[int]:
        """Allocate all that is free, and then one byte; return both errors."""
        return [self.take(self.memory()[0]), self.take(1)]


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(SOCKET)


def ask(method: str = "GET", body: object = None) -> tuple[int, dict]:
    """Send a request to /v1/slot; return status and answer."""
    connection = _Connection("gaia")
    headers = {"Content-Type": "application/json"}
    connection.request(method, "/v1/slot", None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def granted() -> list[int]:
    """Return the bytes and the cores that the socket says are in force."""
    _, slot = ask()
    return [slot["granted"]["memory"], slot["granted"]["cores"]]


def identity() -> dict[str, object]:
    """Return what this container has and whose it is, by everything that says so."""
    _, slot = ask()
    return {
        "uid": os.environ["POD_UID"],
        "owner": slot["owner"],
        "granted": [slot["granted"]["memory"], slot["granted"]["cores"]],
        "total": sum(card.total for card in Card.all().values()),
        "cards": os.environ["CUDA_VISIBLE_DEVICES"],
        "booked": ",".join(card["uuid"] for card in slot["cards"]),
    }


def refused(action, *arguments) -> str:
    """Call something that must not work; return the name of the error."""
    try:
        action(*arguments)
    except OSError as error:
        return error.__class__.__name__
    return ""


def tampering() -> list[str]:
    """Try to write what only the agent may; return what was possible."""
    tried = {
        "limits": lambda: open("/run/gaia/limits", "r+b").close(),
        "unlink": lambda: os.unlink("/run/gaia/limits"),
        "new file": lambda: open("/run/gaia/new", "wb").close(),
        "library": lambda: open("/run/gaia/driver/libcuda.so.1", "r+b").close(),
    }
    return [name for name, action in tried.items() if not refused(action)]


def say(**words: object) -> None:
    """Print one line of JSON."""
    print(json.dumps(words), flush=True)


def stay() -> None:
    """Wait for SIGTERM."""
    signal.sigwait({signal.SIGTERM})
