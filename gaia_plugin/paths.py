"""Where things are: the state root, the state directory of each driver, the built libraries.

Nothing here creates anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from gaia_plugin.errors import Unusable

OPERATOR_SOCKET: Final = "operator.sock"
SLOT_SOCKET: Final = "agent.sock"
CONTAINER_SLOT: Final = Path("/run/gaia")
DRIVER_LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")

_USUAL_DIRECTORIES: Final = tuple(
    Path(each)
    for each in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
        "/usr/local/nvidia/lib64",
    )
)


def state_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where all state lies: $GAIA_STATE, else $XDG_STATE_HOME/gaia, else ~/.local/state/gaia."""
    if given := environ.get("GAIA_STATE"):
        return Path(os.path.abspath(given))
    base = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "gaia")
    return Path(environ.get("HOME") or os.path.expanduser("~"), ".local", "state", "gaia")


def sim_driver(root: Path | None = None) -> Path:
    """Return the directory of the default simulated driver."""
    return (root or state_root()) / "sim-driver"


def state_directory(driver: Path | None, root: Path | None = None) -> Path:
    """Return the state directory of the agent for `driver` (None: the system's own)."""
    root = root or state_root()
    if driver is None:
        return root / "system"
    real = os.path.realpath(driver)
    if real == os.path.realpath(sim_driver(root)):
        return root / "sim"
    return root / f"driver-{hashlib.sha256(os.fsencode(real)).hexdigest()[:8]}"


def state_directories(root: Path | None = None) -> tuple[Path, ...]:
    """Return the state directories that exist under the root: wherever an agent has once run."""
    root = root or state_root()
    try:
        return tuple(sorted(entry for entry in root.iterdir() if (entry / "lock").exists()))
    except OSError:
        return ()


def operator_socket(state: Path) -> Path:
    """Return the operator socket of the agent of this state directory."""
    return state / OPERATOR_SOCKET


def slot_socket(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the socket of the slot that this process runs in; None outside of one."""
    if given := environ.get("GAIA_SLOT_SOCKET"):
        return Path(given)
    default = CONTAINER_SLOT / SLOT_SOCKET
    return default if default.exists() else None


def library_directory() -> Path:
    """Return the directory of the built libraries (``local/``, ``container/``, ``sim/``).

    Raises:
        Unusable: they were not built.
    """
    found = Path(str(files("gaia_plugin").joinpath("lib")))
    if not found.is_dir():
        raise Unusable(
            "Gaia's libraries are not built: the installation was not made by pip or `make install`. "
            "Install a C compiler and run `make install` again."
        )
    return found


def shadow(kind: str = "local") -> Path:
    """Return the directory of the shadow library: ``local`` or ``container``.

    Raises:
        Unusable: it was not built.
    """
    found = library_directory() / kind
    missing = [name for name in DRIVER_LIBRARIES if not (found / name).is_file()]
    if missing:
        raise Unusable(f"The shadow library is not complete: {found} lacks {' and '.join(missing)}.")
    return found


def check_driver(driver: Path) -> Path:
    """Return `driver` as an absolute path if both of the driver's libraries are in it.

    Raises:
        Unusable: one of them is not.
    """
    driver = Path(os.path.abspath(driver))
    missing = [name for name in DRIVER_LIBRARIES if not (driver / name).exists()]
    if missing:
        raise Unusable(
            f"{driver} is no driver directory: it lacks {' and '.join(missing)}. Name the directory that "
            "has both, leave --driver out for the system's, or use --sim for the simulated one."
        )
    return driver


def system_driver() -> Path:
    """Return the directory of the system's driver, as the loader would find it.

    Raises:
        Unusable: there is none.
    """
    for directory in (*_loader_directories(), *_USUAL_DIRECTORIES):
        if all((directory / name).exists() for name in DRIVER_LIBRARIES):
            return directory
    raise Unusable(
        "No NVIDIA driver was found on this machine (no libcuda.so.1 beside libnvidia-ml.so.1). Use --sim "
        "for the simulated GPU, or name the driver's directory with --driver."
    )


def _loader_directories() -> tuple[Path, ...]:
    """Return the directories in which the loader's cache has libcuda.so.1 of this architecture."""
    for command in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            listed = subprocess.run([command, "-p"], capture_output=True, text=True, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        found = re.findall(r"^\s*libcuda\.so\.1 \(([^)]*)\) => (\S+)$", listed.stdout, re.MULTILINE)
        return tuple(Path(path).parent for kind, path in found if "64" in kind)
    return ()
