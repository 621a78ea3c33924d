"""Where things are: the state root, the state directory of each driver, the built libraries.

Nothing here creates anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from gaia_plugin.errors import Unusable

OPERATOR_SOCKET: Final = "operator.sock"
SLOT_SOCKET: Final = "agent.sock"
CONTAINER_SLOT: Final = Path("/run/gaia")
NODE_STATE: Final = Path("/var/lib/gaia")
"""State directory of a Kubernetes node's agent that was told no other."""
DRIVER_LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")

_USUAL_DIRECTORIES: Final = tuple(
    Path(each)
    for each in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu/nvidia/current",
        "/usr/lib/aarch64-linux-gnu/nvidia/current",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
        "/usr/local/nvidia/lib64",
    )
)
_DRIVER_CONTAINER: Final = Path("/run/nvidia/driver")
"""Where NVIDIA's operator shows the root of its driver's container to the node."""


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
    """Return the state directories that exist: wherever an agent has once run.

    These are those under the root, the root itself where a node's agent was told it by GAIA_STATE, and that
    of a node's agent that was told nothing.
    """
    root = root or state_root()
    places = [root, NODE_STATE]
    with suppress(OSError):
        places += sorted(root.iterdir())
    return tuple(dict.fromkeys(place for place in places if _has_lock(place)))


def _has_lock(place: Path) -> bool:
    try:
        return os.access(place, os.R_OK | os.X_OK) and (place / "lock").is_file()
    except OSError:
        return False


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
    if (found := find_driver()) is not None:
        return found
    raise Unusable(
        "No NVIDIA driver was found on this machine (no libcuda.so.1 beside libnvidia-ml.so.1). Use --sim "
        "for the simulated GPU, or name the driver's directory with --driver."
    )


def find_driver(root: Path = Path("/")) -> Path | None:
    """Return the directory of the driver that a system has; None where it has none.

    Args:
        root: where that system's root is mounted: ``/`` is this process's own.
    """
    listed = *_loader_directories(root), *_USUAL_DIRECTORIES
    inside = (_DRIVER_CONTAINER / each.relative_to("/") for each in _USUAL_DIRECTORIES)
    for directory in (*listed, *inside):
        seen = root / directory.relative_to("/")
        if all((seen / name).is_file() for name in DRIVER_LIBRARIES):
            return seen
    return None


def _loader_directories(root: Path) -> tuple[Path, ...]:
    """Return the directories in which the loader's cache of `root` has libcuda.so.1 of this architecture."""
    own = root == Path("/")
    options = ["-p"] if own else ["-p", "-C", str(root / "etc/ld.so.cache")]
    for command in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            listed = subprocess.run(
                [command, *options], capture_output=True, text=True, check=False, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        found = re.findall(r"^\s*libcuda\.so\.1 \(([^)]*)\) => (/\S+)$", listed.stdout, re.MULTILINE)
        return tuple(Path(path).parent for kind, path in found if "64" in kind)
    return ()
