"""``python -m gaia_plugin.agent``: the agent without the command line around it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gaia_plugin.agent.main import serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="gaia agent")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--driver", type=Path)
    parser.add_argument("--idle-exit", type=float)
    parser.add_argument("--compute-ceiling", type=int, default=100, choices=range(1, 101), metavar="PERCENT")
    given = parser.parse_args()
    sys.exit(
        serve(
            given.state.absolute(),
            given.driver,
            idle_exit=given.idle_exit,
            compute_ceiling=given.compute_ceiling,
        )
    )
