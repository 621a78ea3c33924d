"""Placement, measured: `python benchmarks/placement [node | fleet | filling | apart | departures] [options]`.

Without a name, all of them in short, over two seeds; `--help` after a name says what it takes.
"""

from __future__ import annotations

import sys

import apart
import departures
import filling
import fleet
import node

TABLES = {
    "node": (node.main, []),
    "fleet": (fleet.main, ["--pods", "8000"]),
    "filling": (filling.main, ["--seeds", "2"]),
    "apart": (apart.main, ["--seeds", "2"]),
    "departures": (departures.main, ["--seeds", "2"]),
}
"""Each table, and what makes it short."""


def main() -> int:
    """Print one table, or all."""
    if len(sys.argv) < 2:
        for name, (table, short) in TABLES.items():
            print(f"\n{name}\n")
            table(short)
        return 0
    name, *options = sys.argv[1:]
    if name not in TABLES:
        print(__doc__, file=sys.stderr)
        return 2
    return TABLES[name][0](options)


if __name__ == "__main__":
    sys.exit(main())
