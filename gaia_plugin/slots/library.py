"""Versions of the shadow libraries: a new version is a new directory, never overwritten.

A running program has its library mapped; writing into that file would crash it. So each set of
(libraries, driver) gets a directory named after its contents, made aside and renamed into place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from gaia_plugin.errors import Unusable

SHADOWS: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
_ALIASES: Final = {"libcuda.so": "libcuda.so.1", "libnvidia-ml.so": "libnvidia-ml.so.1"}
_DRIVER: Final = "driver"

_State = tuple[tuple[int, ...], ...]
_Key = tuple[Path, Path, Path | None]
_found: dict[_Key, tuple[_State, Path]] = {}
"""Versions that were found sound, and the state of all their files then."""


def library_version(store: Path, shadows: Path, driver: Path) -> Path:
    """Return the directory below `store` with the shadows in front of `driver`, made if need be.

    Args:
        store: `<state>/lib`.
        shadows: where the shadow libraries were installed.
        driver: the directory with the real (or simulated) libraries of the driver.

    Raises:
        Unusable: shadows or driver are not where they should be.
    """
    return _version(store, shadows, _driver(driver))


def container_version(store: Path, shadows: Path) -> Path:
    """Return the directory below `store` with the shadows for containers, made if need be.

    The path of the driver is compiled into them, so none is in it.

    Args:
        store: `<state>/lib`.
        shadows: where the shadow libraries were installed.

    Raises:
        Unusable: the shadows are not where they should be.
    """
    return _version(store, shadows, None)


def _version(store: Path, shadows: Path, target: Path | None) -> Path:
    key = (store, shadows, target)
    known = _found.get(key)
    # as long as none of these files was touched there is no need to read them all again
    if known is not None and known[0] == _state(shadows, known[1]):
        return known[1]
    version = _made(store, shadows, target)
    state = _state(shadows, version)
    if state is not None:
        _found[key] = state, version
    return version


def _state(shadows: Path, version: Path) -> _State | None:
    names = (*SHADOWS, *_ALIASES, _DRIVER)
    try:
        of_shadows = [os.stat(shadows / name) for name in SHADOWS]
        of_version = [os.lstat(version / name) for name in names if name != _DRIVER or _has(version, name)]
    except OSError:
        return None
    return tuple(
        (each.st_dev, each.st_ino, each.st_mode, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        for each in (*of_shadows, *of_version)
    )


def _has(version: Path, name: str) -> bool:
    return os.path.lexists(version / name)


def _made(store: Path, shadows: Path, target: Path | None) -> Path:
    contents = {name: _shadow(shadows / name) for name in SHADOWS}
    digest = hashlib.sha256(b"" if target is None else os.fsencode(target))
    for name, octets in contents.items():
        digest.update(name.encode() + hashlib.sha256(octets).digest())
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = digest.hexdigest()[:16]
    # a directory that was damaged is left alone, for a program may have it mapped
    for attempt in range(100):
        version = store / (name if attempt == 0 else f"{name}-{attempt}")
        if not version.exists():
            _make(version, contents, target)
        if _sound(version, contents, target):
            return version
    raise Unusable(f"The library directories below {store} are damaged; move them away.")


def _shadow(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise Unusable(
            f"The shadow library {path} is missing ({fault.strerror}). Run `make install` again."
        ) from fault


def _driver(driver: Path) -> Path:
    target = Path(os.path.realpath(driver))
    for name in SHADOWS:
        if not (target / name).exists():
            raise Unusable(
                f"There is no {name} in {driver}. Name the directory of the GPU driver's libraries "
                f"with --driver, or use the simulated GPU."
            )
    return target


def _make(version: Path, contents: dict[str, bytes], driver: Path | None) -> None:
    aside = Path(tempfile.mkdtemp(prefix=f".{version.name}-", dir=version.parent))
    try:
        for name, octets in contents.items():
            (aside / name).write_bytes(octets)
            (aside / name).chmod(0o555)
        for alias, name in _ALIASES.items():
            (aside / alias).symlink_to(name)
        if driver is not None:
            (aside / _DRIVER).symlink_to(driver)
        aside.chmod(0o755)
        aside.rename(version)
    except OSError as fault:
        # somebody else may have been faster: a directory with content is not renamed over
        if fault.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sound(version: Path, contents: dict[str, bytes], driver: Path | None) -> bool:
    try:
        whole = all((version / name).read_bytes() == octets for name, octets in contents.items())
        links = all((version / alias).readlink() == Path(name) for alias, name in _ALIASES.items())
        return whole and links and (driver is None or (version / _DRIVER).readlink() == driver)
    except OSError:
        return False
