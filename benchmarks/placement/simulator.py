"""The shared placement simulator and its traces, which lie beside this repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def load(shared: Path) -> None:
    """Make the simulator's package importable, or end with the sentence that says where it was looked for."""
    bench = shared / "bench"
    if not (bench / "placement" / "simulate.py").is_file():
        raise SystemExit(f"The placement simulator is not in {bench}; say where by --shared.")
    if str(bench) not in sys.path:
        sys.path.insert(0, str(bench))


def trace_requests(data: Path, trace: str) -> list[Any]:
    """Return the pods of a trace, as the simulator reads them."""
    load(data.parents[1])
    from placement.openb import read_requests

    return list(read_requests(data / f"openb_pod_list_{trace}.csv"))
