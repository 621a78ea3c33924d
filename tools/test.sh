#!/usr/bin/env bash
# Runs the tests in layers and prints the seconds of each.
#   tools/test.sh          every layer
#   tools/test.sh LAYER    one of: lint unit c property model kubelet fault cluster sim agent hub browser wheel long
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
export PATH="$bin:$PATH"
# a state and a home of our own: the tests must not see, and not touch, a running Gaia
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gaia-test.XXXXXX")
export GAIA_STATE=$scratch/state JUPYTER_CONFIG_DIR=$scratch/jupyter JUPYTER_RUNTIME_DIR=$scratch/jupyter-runtime
trap 'rm -rf "$scratch"' EXIT
failed=() left_out=() report=()
unable=77 # a layer's status where the machine lacks what it needs, said in a sentence

layer() { # name, command...
    local name=$1 start=$SECONDS status
    shift
    printf '\n== %s\n' "$name"
    "$@"
    case $? in
    0) status=ok ;;
    "$unable") status="left out" left_out+=("$name") ;;
    *) status=FAILED failed+=("$name") ;;
    esac
    report+=("$(printf '%-10s %5d s  %s' "$name" $((SECONDS - start)) "$status")")
}
tests() { "$bin/python" -m pytest -q -p no:cacheprovider "$@"; }

lint() {
    ruff check . && ruff format --check . && mypy && lint-imports &&
        find libvgpu benchmarks \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 clang-format --dry-run --Werror
}

# a real Kubernetes wants root and a few programs: without them it fails in CI and is left out elsewhere
cluster() {
    "$bin/python" -m tests.cluster.build
    local status=$?
    if [ $status = 3 ] && [ "${CI:-}" != true ]; then return "$unable"; fi
    [ $status = 0 ] && tests tests/cluster -m "not long"
}

run() {
    case $1 in
    lint) layer lint lint ;;
    unit) layer unit tests tests/unit -m "not long" ;;
    c) layer c tests tests/c -m "not long" ;;
    property) layer property tests tests/property -m "not long" ;;
    model) layer model tests tests/model -m "not long" ;;
    kubelet) layer kubelet tests tests/kubelet -m "not long" ;;
    cluster) layer cluster cluster ;;
    fault) layer fault tests tests/fault -m "not long" ;;
    sim) layer sim tests tests/sim -m "not long" ;;
    hub) layer hub tests tests/hub -m "not long" ;;
    browser) layer browser tests tests/browser -m "not long" ;;
    wheel) layer wheel tests tests/wheel -m "not long" ;;
    long) layer long tests tests -m "long" --timeout 3600 ;;
    *) echo "no layer is called $1" >&2 && exit 2 ;;
    esac
}

if [ $# -gt 0 ]; then
    for name in "$@"; do run "$name"; done
else
    for name in lint unit property model sim c kubelet fault cluster hub wheel browser; do run "$name"; done
fi

printf '\n== seconds\n'
printf '%s\n' "${report[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    printf '\nfailed: %s\n' "${failed[*]}"
    exit 1
fi
if [ ${#left_out[@]} -gt 0 ]; then
    echo "all other layers passed; left out: ${left_out[*]}"
else
    echo "all layers passed"
fi
