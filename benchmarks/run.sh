#!/usr/bin/env bash
# Prints every table of benchmarks/, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in interposer placement resize start; do
    printf '\n== %s\n' "$program"
    .venv/bin/python "benchmarks/$program.py" "$@"
done
