"""Loads libnvidia-ml.so.1 from where it is asked to, behind nvidia-ml-py.

nvidia-ml-py (module ``pynvml``) keeps one library per process in a global of its own. Each `Library`
here gets a private copy of that module with the right library set in it, so that a simulated driver
and the system's, or two simulated ones, never mix, and other users of ``pynvml`` see nothing of it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import sys
from pathlib import Path
from typing import Any, Final

from gaia_plugin.errors import Unusable

SONAME: Final = "libnvidia-ml.so.1"

_numbers = itertools.count()
_loaded: dict[tuple[int, int], Any] = {}
"""The copies of ``pynvml`` by device and inode of their library: a library is never loaded twice."""

_START_TROUBLE: Final[dict[int | None, str]] = {
    4: "Gaia may not open the GPU devices: add this user to the group that owns /dev/nvidia0.",
    9: "The NVIDIA driver is installed but not loaded: try `sudo modprobe nvidia`, then `nvidia-smi`.",
    17: "The operating system blocks the NVIDIA driver; see `dmesg`.",
    18: "The NVIDIA driver was updated while the old one is still loaded: restart this machine.",
}
"""What to do about NVML's answers to nvmlInit, by its error number."""


class Library:
    """NVML, loaded and initialised.

    Args:
        driver_dir: the directory with libnvidia-ml.so.1; None: where the system finds it.

    Raises:
        Unusable: there is no such library, it cannot be loaded, or the driver does not start.
    """

    def __init__(self, driver_dir: Path | None) -> None:
        self.pynvml: Any = _open_in(driver_dir) if driver_dir is not None else _open_system()
        self.error: type[Exception] = self.pynvml.NVMLError
        try:
            self.pynvml.nvmlInit()
        except self.error as trouble:
            code = self.code(trouble)
            raise Unusable(
                _START_TROUBLE.get(code, f"The NVIDIA driver does not start: {trouble}.")
            ) from None

    @staticmethod
    def code(trouble: Exception) -> int:
        """Return NVML's number of one of its errors."""
        return int(getattr(trouble, "value", 999))

    def function(self, name: str) -> Any:
        """Return a function of the C library itself, or None where this driver lacks it."""
        return getattr(self.pynvml.nvmlLib, name, None)

    def close(self) -> None:
        """Tell NVML that this user is done; the library stays loaded."""
        try:
            self.pynvml.nvmlShutdown()
        except self.error:
            return


def _open_in(driver_dir: Path) -> Any:
    path = Path(os.path.realpath(driver_dir / SONAME))
    try:
        status = path.stat()
    except OSError:
        raise Unusable(
            f"There is no {SONAME} in {driver_dir}: name the directory that holds the driver's "
            f"libcuda.so.1 and {SONAME}, or none for the system's own."
        ) from None
    key = (status.st_dev, status.st_ino)
    if key not in _loaded:
        _loaded[key] = _copy_of_pynvml(_load(str(path)))
    return _loaded[key]


def _open_system() -> Any:
    # The loader answers a bare name with any library of that SONAME that is loaded already,
    # wherever it came from: this process would take a simulated card for a real one.
    if any(key != (0, 0) for key in _loaded) and (0, 0) not in _loaded:
        raise Unusable("This process has opened another driver already: open the system's in one of its own.")
    if (0, 0) not in _loaded:
        _loaded[0, 0] = _copy_of_pynvml(_load(SONAME))
    return _loaded[0, 0]


def _load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as trouble:
        if name == SONAME:
            raise Unusable(
                f"This machine has no NVIDIA driver ({SONAME} was not found): install the driver, "
                "or use the simulated GPU."
            ) from None
        raise Unusable(f"{name} cannot be loaded: {trouble}.") from None


def _copy_of_pynvml(library: ctypes.CDLL) -> Any:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise Unusable("The Python package nvidia-ml-py is missing: pip install 'gaia-vgpu[node]'.")
    # It looks itself up in sys.modules while it is executed, hence a name of its own there.
    name = f"{__name__}.pynvml_{next(_numbers)}"
    own = importlib.util.spec_from_file_location(name, spec.origin)
    if own is None or own.loader is None:
        raise Unusable("The Python package nvidia-ml-py cannot be loaded: install it again.")
    module: Any = importlib.util.module_from_spec(own)
    sys.modules[name] = module
    own.loader.exec_module(module)
    module.nvmlLib = library
    return module
