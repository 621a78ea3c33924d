#!/usr/bin/env bash
# Prints every table of benchmarks/, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in interposer placement resize resize_page start deviceplugin node extender compute; do
    printf '\n== %s\n' "$program"
    options=()
    if [ "$program" = compute ]; then options=(--short); fi # the full table takes an hour
    if [ -d "benchmarks/$program" ]; then path=benchmarks/$program; else path=benchmarks/$program.py; fi
    .venv/bin/python "$path" "${options[@]}"
done
