"""Whether this node's container runtime applies CDI specs, and those in our directory.

A runtime that does not know CDI starts the container without a word and without a card; so the question is
asked before anything is advertised.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gaia_plugin.errors import Unusable

DEFAULT_DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
CONFIGURATIONS: Final = {
    "containerd": Path("/etc/containerd/config.toml"),
    "cri-o": Path("/etc/crio/crio.conf"),
}

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?.*")
_OLDEST: Final = {"containerd": (1, 7, 13), "cri-o": (1, 28, 0)}
"""Older ones know CDI, if at all, without the annotations in which a spec tells its owner."""
_ON_BY_DEFAULT: Final = (2, 0, 0)
_PLUGINS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A container runtime as the node's status names it."""

    name: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        """Return name and version as people write them."""
        return f"{self.name} {'.'.join(map(str, self.version))}"


def parse(text: str) -> Runtime | None:
    """Return the runtime in ``status.nodeInfo.containerRuntimeVersion``, as ``containerd://2.1.9``."""
    name, _, rest = text.partition("://")
    found = _VERSION.fullmatch(rest)
    if not name or found is None:
        return None
    major, minor, patch = (int(each or 0) for each in found.groups())
    return Runtime(name, (major, minor, patch))


def check(reported: str, configuration: Mapping[str, Any] | None, directory: str) -> str | None:
    """Refuse a runtime without CDI; return a sentence for the log where that cannot be told, else None.

    Args:
        reported: ``status.nodeInfo.containerRuntimeVersion`` of this node.
        configuration: of the runtime; None where it cannot be read.
        directory: where our specs are written.

    Raises:
        Unusable: CDI is off, or the runtime does not look into `directory`. Says how to change that.
    """
    runtime = parse(reported)
    if runtime is None or runtime.name not in _OLDEST:
        return (
            f"Whether the container runtime {reported or 'of this node'} applies CDI specs is not known: "
            "look whether a container with a slice has /run/gaia."
        )
    if runtime.version < _OLDEST[runtime.name]:
        oldest = ".".join(map(str, _OLDEST[runtime.name]))
        raise Unusable(
            f"{runtime} cannot give containers their slices: Gaia needs CDI 0.6, that is {runtime.name} "
            f"{oldest} or newer."
        )
    settings = None if configuration is None else _settings(runtime, configuration)
    unsure = _check_containerd(runtime, settings) if runtime.name == "containerd" else None
    _check_directories(runtime, settings or {}, directory)
    return unsure


def read_configuration(path: Path, root: Path = Path("/")) -> dict[str, Any] | None:
    """Return a runtime's settings: of the file, of those it imports, and of the directory ``<file>.d``.

    None where it cannot be read, as in a pod that has not mounted it.

    Args:
        path: as the node calls it.
        root: where this process sees the node's root.
    """
    try:
        whole = tomllib.loads(_seen(path, root).read_text())
    except (OSError, ValueError):
        return None
    patterns = [each for each in whole.get("imports", ()) if isinstance(each, str)]
    for pattern in [*patterns, f"{path}.d/*.conf"]:
        absolute = _seen(Path(path.parent, pattern), root)
        for part in sorted(absolute.parent.glob(absolute.name)):
            try:
                whole = _merged(whole, tomllib.loads(part.read_text()))
            except (OSError, ValueError):
                continue
    return whole


def require(reported: str, directory: Path, *, root: Path = Path("/")) -> str | None:
    """Do what `check` does, with the configuration in its usual file; `root` is where the node's root is."""
    runtime = parse(reported)
    usual = CONFIGURATIONS.get(runtime.name if runtime else "")
    return check(reported, None if usual is None else read_configuration(usual, root), str(directory))


def _seen(path: Path, root: Path) -> Path:
    return root / path.relative_to("/")


def _check_containerd(runtime: Runtime, settings: Mapping[str, Any] | None) -> str | None:
    advice = (
        "Set `enable_cdi = true` in the CRI plugin's section of /etc/containerd/config.toml "
        f'([plugins."{_PLUGINS[0 if runtime.version >= _ON_BY_DEFAULT else 1]}"]) and restart containerd.'
    )
    default = runtime.version >= _ON_BY_DEFAULT
    if settings is None and not default:
        return (
            f"{runtime} has CDI off unless it is switched on, and its settings cannot be read here. {advice}"
        )
    if not (settings or {}).get("enable_cdi", default):
        raise Unusable(f"CDI is off in {runtime}, so containers would get no slice. {advice}")
    return None


def _check_directories(runtime: Runtime, settings: Mapping[str, Any], directory: str) -> None:
    looked = settings.get("cdi_spec_dirs", DEFAULT_DIRECTORIES)
    if not any(_plain(str(each)) == _plain(directory) for each in looked):
        raise Unusable(
            f"{runtime} looks for CDI specs in {' and '.join(map(str, looked)) or 'no directory'}, not in "
            f"{directory}. Add that to its cdi_spec_dirs and restart it, or name one of these with "
            "GAIA_CDI_DIR."
        )


def _settings(runtime: Runtime, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    if runtime.name == "cri-o":
        return _table(_table(configuration, "crio"), "runtime")
    plugins = _table(configuration, "plugins")
    return _table(plugins, _PLUGINS[1]) | _table(plugins, _PLUGINS[0])


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def _merged(whole: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(whole)
    for key, value in part.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _plain(path: str) -> str:
    # /var/run is a link to /run on every system of today, also where this process does not see it
    plain = os.path.normpath(path)
    return plain.removeprefix("/var") if plain.startswith("/var/run/") else plain
