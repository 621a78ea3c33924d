"""Writes the directory of a simulated driver."""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gaia_plugin import paths
from gaia_plugin.errors import Unusable
from gaia_plugin.sim.config import SimConfig
from gaia_plugin.sim.probe import LIBRARIES, state_file
from gaia_plugin.sim.truth import Simulation

CONFIGURATION = "sim.conf"


def make_sim(directory: str | os.PathLike[str], config: SimConfig | None = None) -> Path:
    """Make `directory` a simulated driver with the cards of `config`, and return it, absolute.

    Done again with the same configuration it changes nothing, also while programs use the cards.
    Every file is replaced as a whole, so nobody sees half of one.

    Raises:
        Unusable: other cards are asked for while programs run on the present ones, the simulated
            driver was not built, or it cannot work on this machine.
    """
    where = Path(os.path.abspath(directory))
    text = (config or SimConfig()).text()
    with _locked(where):
        present = _read(where / CONFIGURATION)
        if present is not None and present != text:
            _refuse_if_in_use(where)
        _copy_libraries(where)
        if present != text:
            _replace(where / CONFIGURATION, text.encode())
        state_file(where)
    return where


def default_sim() -> Path:
    """Return the default simulated driver below the state root, made with two cards if it is missing.

    Cards that it has already stay as they are; only its libraries are brought up to date.

    Raises:
        Unusable: as `make_sim`.
    """
    where = paths.sim_driver()
    if _read(where / CONFIGURATION) is None:
        return make_sim(where, SimConfig())
    with _locked(where):
        _copy_libraries(where)
        state_file(where)
    return where


@contextlib.contextmanager
def _locked(where: Path) -> Iterator[None]:
    try:
        where.mkdir(parents=True, exist_ok=True)
        lock = os.open(where / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as trouble:
        raise Unusable(
            f"The simulated driver cannot be written to {where}: {trouble.strerror}. Name "
            "another state directory with GAIA_STATE."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as trouble:
        raise Unusable(f"{path} cannot be read: {trouble}.") from None


def _refuse_if_in_use(where: Path) -> None:
    try:
        running = Simulation(where).processes()
    except Unusable:
        return  # what cannot be opened is used by nobody
    if running:
        pids = ", ".join(str(process.pid) for process in running[:5])
        more = "" if len(running) <= 5 else f" and {len(running) - 5} more"
        raise Unusable(
            f"Programs still use the simulated cards in {where} (process {pids}{more}). End them before "
            "changing the cards, or make other cards in another directory."
        )


def _copy_libraries(where: Path) -> None:
    built = paths.library_directory() / "sim"
    for name, source in LIBRARIES.items():
        original, copy = built / source, where / name
        if not original.is_file():
            raise Unusable(
                f"The simulated GPU was not built: {original} is missing. Run `make install` again."
            )
        if not copy.is_file() or not filecmp.cmp(original, copy, shallow=False):
            _replace(copy, original.read_bytes())


def _replace(path: Path, content: bytes) -> None:
    """Write `path` anew: a mapped library is never overwritten, a reader never sees half a file."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as trouble:
        raise Unusable(f"{path} cannot be written: {trouble.strerror}.") from None
