"""`gaia paths`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gaia_plugin.commands.common import JsonOption, print_json


def paths(json: JsonOption = False) -> None:
    """Say where libraries, state and sockets are."""
    found = _collect()
    if json:
        print_json(found)
        return
    for name, value in _flat(found):
        sys.stdout.write(f"{name}: {value}\n")


def _collect() -> dict[str, Any]:
    from gaia_plugin import paths as places
    from gaia_plugin.errors import Refusal, Unusable
    from gaia_plugin.sim import default_sim

    library = places.library_directory()
    with suppress(Unusable, Refusal, OSError):
        default_sim()  # so that the path named below is there
    root = places.state_root()
    slot = places.slot_socket()
    states = {state.name: state for state in places.state_directories(root)}
    states = {"system": root / "system", "sim": root / "sim", **states}
    return {
        "state_root": str(root),
        "shadow_local": str(library / "local"),
        "shadow_container": str(library / "container"),
        "simulated_library": str(library / "sim"),
        "simulated_driver": str(places.sim_driver(root)),
        "pages_library": str(library / "libgaia_pages.so"),
        "slot_socket": None if slot is None else str(slot),
        "states": {
            name: {"directory": str(state), "operator_socket": str(places.operator_socket(state))}
            for name, state in sorted(states.items())
        },
    }


def _flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        name = f"{before}{key.replace('_', ' ')}"
        if isinstance(item, dict):
            yield from _flat(item, f"{name}, ")
        else:
            yield name, "none" if item is None else str(item)
