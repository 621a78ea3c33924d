"""Asks a simulated driver, in a process of its own, whether it works here and where its state is.

Not in this process: a library named libnvidia-ml.so.1 that is loaded by path answers every later
request for that bare name, so that NVML of the real driver could not be reached any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gaia_plugin.errors import Unusable

LIBRARIES: Final = {
    "libcuda.so.1": "libcuda.so.1",
    "libcuda.so": "libcuda.so.1",
    "libnvidia-ml.so.1": "libnvidia-ml.so.1",
    "libnvidia-ml.so": "libnvidia-ml.so.1",
}
"""The files of a driver directory, and which built library each is a copy of."""

_ASK: Final = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.gaia_sim_problem.restype = library.gaia_sim_state.restype = ctypes.c_char_p
problem, state = library.gaia_sim_problem(), library.gaia_sim_state()
if sys.argv[2] != "keep":
    library.gaia_sim_leave()
said = [problem and problem.decode(errors="replace"), state.decode(errors="surrogateescape")]
print(json.dumps(said), flush=True)
sys.stdin.read()
"""


def state_file(directory: Path, *, keep: bool = False) -> Path:
    """Return the path of the state file of the simulation in `directory`, which works here.

    Args:
        keep: leave the file there, ready, also if no process uses it. Such a file goes when the next
            process that watches the simulation ends.

    Raises:
        Unusable: it cannot work here; the sentence says why (no /dev/shm, foreign file, bad sim.conf).
    """
    with _asked(directory, "keep" if keep else "leave") as state:
        return state


def held_state_file(directory: Path) -> contextlib.AbstractContextManager[Path]:
    """Return the same as a context, within which another process has the file and nobody removes it.

    Raises:
        Unusable: as `state_file`.
    """
    return _asked(directory, "keep")


@contextlib.contextmanager
def _asked(directory: Path, end: str) -> Iterator[Path]:
    library = directory / "libnvidia-ml.so.1"
    if not library.is_file():
        raise Unusable(f"There is no simulated driver in {directory}: it lacks {library.name}.")
    environ = {name: value for name, value in os.environ.items() if name != "GAIA_SIM_CONF"}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _ASK, str(library), end],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as asked:
        assert asked.stdout is not None
        said = asked.stdout.readline()
        try:
            problem, state = json.loads(said)
        except ValueError:
            _, trouble = asked.communicate()
            last = (trouble.strip().splitlines() or ["no reason given"])[-1]
            raise Unusable(f"{library} cannot be loaded as the simulated driver: {last}") from None
        if problem is not None:
            raise Unusable(problem)
        yield Path(state)


def leave(directory: Path) -> None:
    """Let this process go from the cards in `directory`, and remove their state file if nobody has it.

    For the end of a process that has watched them through NVML; does nothing with a real driver.
    """
    path = os.path.realpath(directory / "libnvidia-ml.so.1")
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        return  # it was never loaded
    end = getattr(library, "gaia_sim_leave", None)
    if end is not None:
        end()
