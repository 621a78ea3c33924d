#!/usr/bin/env bash
# Makes .venv with everything in it; does nothing when it is there and nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
say() { printf '  %s\n' "$*"; }
fail() { printf 'gaia: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no $python here. Install Python 3.11 or newer (Debian: apt install python3 python3-venv)."
"$python" -c '' || fail "$python is there but does not run; set PYTHON=/path/to/python3."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old. Gaia needs Python 3.11 or newer; set PYTHON=/path/to/python3."
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "this Python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv."
command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null ||
    fail "no C compiler here; libvgpu is compiled on this machine. On Debian and Ubuntu: apt install build-essential."

mkdir -p build
exec 9>build/install.lock
flock 9

# what the installation depends on: the interpreter, the project's settings, every C file
stamp=$({ "$python" -c 'import sys; print(sys.executable, sys.version)'; pwd
    find pyproject.toml tools/install.sh gaia_hub/server/gaia.json libvgpu -type f -not -name '*.md' -print0 | sort -z | xargs -0 sha256sum; } | sha256sum)
if [ -x .venv/bin/gaia ] && [ "$(cat .venv/gaia.stamp 2>/dev/null)" = "$stamp" ]; then exit 0; fi

say "[1/3] virtual environment in .venv"
[ -x .venv/bin/python ] || "$python" -m venv .venv
say "[2/3] installer"
.venv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5'
say "[3/3] Gaia and what it needs; libvgpu and the simulated GPU are compiled"
log=$(mktemp)
if ! .venv/bin/uv pip install --python .venv/bin/python -e '.[dev]' >"$log" 2>&1; then
    cat "$log" >&2
    fail "the installation failed; the lines above say where."
fi
rm -f "$log"
printf '%s' "$stamp" >.venv/gaia.stamp
