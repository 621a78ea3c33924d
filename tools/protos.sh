#!/usr/bin/env bash
# Makes the Python code of the kubelet's interfaces from gaia_plugin/deviceplugin/proto/*/*/api.proto.
#   tools/protos.sh           into the tree
#   tools/protos.sh TARGET    below the directory TARGET instead (what the test compares with)
# The generators are pinned: code made by the oldest gRPC that we support runs with every newer one, never
# the other way round. They live in an environment of their own, in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
grpcio_tools=1.68.0 # the floor of grpcio in pyproject.toml
mypy_protobuf=5.1.0 # the types, for mypy only; wants a newer protobuf than the code is made for
protobuf=7.35.1
target=$(mkdir -p "${1:-.}" && cd "${1:-.}" && pwd)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gaia/protos-$grpcio_tools-$mypy_protobuf-$protobuf
if [ ! -e "$cache/ready" ]; then
    mkdir -p "$(dirname "$cache")"
    exec 9>"$cache.lock"
    flock 9
    if [ ! -e "$cache/ready" ]; then
        rm -rf "$cache"
        "${PYTHON:-python3}" -m venv "$cache"
        # no dependencies: each is named, and setuptools is there for the pkg_resources of that age
        "$cache/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
            "grpcio-tools==$grpcio_tools" "grpcio==$grpcio_tools" \
            "mypy-protobuf==$mypy_protobuf" "protobuf==$protobuf" 'setuptools<81'
        touch "$cache/ready"
    fi
fi

# paths from the root of the tree: imports are those of the package, and names are unique to protobuf
mapfile -t protos < <(find gaia_plugin/deviceplugin/proto -name '*.proto' | LC_ALL=C sort)
PATH="$cache/bin:$PATH" "$cache/bin/python" -W ignore -m grpc_tools.protoc -I . \
    --python_out="$target" --mypy_out="quiet:$target" --grpc_python_out="$target" --mypy_grpc_out="quiet:$target" \
    "${protos[@]}"
