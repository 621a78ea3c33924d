"""Specs and edits of a slot, by their values."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gaia_plugin.slots.cdi import spec as made
from gaia_plugin.slots.cdi.driver import (
    CUDA,
    NVML,
    DriverEdits,
    Private,
    covering,
    loader_directories,
    names_of,
    shadow_of,
    soname,
)
from gaia_plugin.slots.cdi.model import (
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    Mount,
    Spec,
    check_kind,
    check_name,
    lowest_version,
    merge,
)
from tests.unit.cdi.cdi_rules import check, needed

UID = "0c5dbb8f-6a4e-4f3b-9d83-2f3a6f1c9e11"
NAME = "0123456789abcdef-fedcba9876543210"
CARDS = ("GPU-a", "GPU-b")
DRIVER = DriverEdits(
    edits=ContainerEdits(
        env=("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"),
        device_nodes=(DeviceNode("/dev/nvidia0"), DeviceNode("/dev/nvidiactl")),
        mounts=(Mount("/host/smi", "/usr/bin/nvidia-smi", ("ro", "bind")),),
        hooks=(Hook("createContainer", "/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook", "update-ldcache")),),
    ),
    private=(Private(CUDA, "/host/libcuda.so.580"), Private("state", "/dev/shm/state", writable=True)),
    covered=covering({CUDA: "580.95.05", NVML: "580.95.05"}, ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"]),
)
SHADOWS = {name: Path("/state/slots/s/lib/v", name) for name in (CUDA, NVML)}


def whole() -> ContainerEdits:
    return made.edits(Path("/state/slots/s"), CARDS, DRIVER, SHADOWS, usage=Path("/state/usage/s/usage"))


def test_a_slots_spec_keeps_cdis_rules_and_says_its_owner() -> None:
    spec = made.spec(NAME, whole(), UID)
    check(spec)
    assert (spec["cdiVersion"], spec["kind"]) == ("0.6.0", "gaia.io/slot")
    assert spec["annotations"] == {"gaia.io/owner": UID}
    assert [device["name"] for device in spec["devices"]] == [NAME]


def test_the_other_name_changes_one_harmless_variable() -> None:
    spec = made.spec(NAME, made.part("vgpu-cores"), UID, kind="gpu.example.com/slot")
    check(spec)
    assert spec["devices"][0]["containerEdits"] == {"env": ["GAIA_SLICE_PART=vgpu-cores"]}
    assert (spec["kind"], spec["annotations"]) == ("gpu.example.com/slot", {"gpu.example.com/owner": UID})


def test_a_spec_without_edits_is_never_made() -> None:
    with pytest.raises(ValueError, match="would change nothing"):
        made.spec(NAME, ContainerEdits(), UID)


def test_the_environment_carries_no_limit_and_ours_comes_before_the_drivers() -> None:
    assert sorted(whole().env) == [
        "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
        "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64",
        "NVIDIA_VISIBLE_DEVICES=void",
        "TF_FORCE_GPU_ALLOW_GROWTH=true",
        "XLA_PYTHON_CLIENT_PREALLOCATE=false",
    ]


def test_what_is_mounted() -> None:
    mounts = {mount.container_path: mount for mount in whole().mounts}
    hosts = {path: mount.host_path for path, mount in mounts.items()}
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        for shadow in (CUDA, NVML):
            for name in names_of(shadow, "580.95.05"):
                assert hosts.pop(f"{directory}/{name}") == f"/state/slots/s/lib/v/{shadow}"
    assert hosts == {
        "/run/gaia": "/state/slots/s",
        "/run/gaia/usage": "/state/usage/s/usage",
        "/run/gaia/driver/libcuda.so.1": "/host/libcuda.so.580",
        "/run/gaia/driver/state": "/dev/shm/state",
        "/usr/local/cuda/compat": "/state/slots/s/empty",
        "/usr/bin/nvidia-smi": "/host/smi",
    }
    writable = {path for path, mount in mounts.items() if "ro" not in mount.options}
    assert writable == {"/run/gaia/usage", "/run/gaia/driver/state"}


def test_a_mount_point_comes_before_what_is_mounted_below_it() -> None:
    paths = [mount.container_path for mount in whole().mounts]
    for index, path in enumerate(paths):
        assert not any(later.startswith(path + "/") for later in paths[:index])
        assert not any(path.startswith(later + "/") for later in paths[index:])


def test_devices_and_hooks_of_the_driver_stay() -> None:
    assert whole().device_nodes == DRIVER.edits.device_nodes
    assert whole().hooks == DRIVER.edits.hooks


@pytest.mark.parametrize(
    ("name", "shadow"),
    [
        ("libcuda.so", CUDA),
        ("libcuda.so.1", CUDA),
        ("libcuda.so.580.95.05", CUDA),
        ("libcuda.so.1.1", CUDA),
        ("libnvidia-ml.so.1", NVML),
        ("libnvidia-ml.so.580.95.05", NVML),
        ("libcudart.so.13", None),
        ("libcuda.sox", None),
        ("libcudadebugger.so.580.95.05", None),
        ("libnvidia-ml.a", None),
        ("libcuda.so.old", None),
    ],
)
def test_which_files_a_shadow_stands_before(name: str, shadow: str | None) -> None:
    assert shadow_of(name) == shadow


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("libnvidia-ptxjitcompiler.so.580.95.05", "libnvidia-ptxjitcompiler.so.1"),
        ("libnvidia-nvvm.so.580.95.05", "libnvidia-nvvm.so.4"),
        ("libcudadebugger.so.580.95.05", "libcudadebugger.so.1"),
    ],
)
def test_the_name_that_programs_ask_for(name: str, asked: str) -> None:
    assert soname(name) == asked


@pytest.mark.parametrize(
    ("machine", "directories"),
    [
        ("x86_64", ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")),
        ("aarch64", ("/usr/lib/aarch64-linux-gnu", "/usr/lib64")),
        ("riscv64", ("/usr/lib64",)),
    ],
)
def test_where_loaders_look(machine: str, directories: tuple[str, ...]) -> None:
    assert loader_directories(machine) == directories


def test_a_directory_that_is_named_twice_is_covered_once() -> None:
    assert covering({CUDA: "1"}, ["/usr/lib64", "/usr/lib64"]) == {
        CUDA: ("/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so")
    }


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (Spec("", "a/b", (Device("x", ContainerEdits(env=("A=1",))),)), "0.3.0"),
        (Spec("", "a/b", (Device("x", ContainerEdits(mounts=(Mount("/a", "/b", type="bind"),))),)), "0.4.0"),
        (Spec("", "a/b", (Device("0x", ContainerEdits(env=("A=1",))),)), "0.5.0"),
        (Spec("", "a/b", (Device("x", ContainerEdits(device_nodes=(DeviceNode("/a", "/b"),))),)), "0.5.0"),
        (Spec("", "a/b", (Device("x", ContainerEdits(env=("A=1",))),), annotations={"a/o": "1"}), "0.6.0"),
        (Spec("", "a/b", (Device("x", ContainerEdits(env=("A=1",)), {"a/o": "1"}),)), "0.6.0"),
        (Spec("", "a/b", (Device("0x", ContainerEdits(additional_gids=(5,))),)), "0.7.0"),
    ],
)
def test_the_lowest_version_that_has_the_fields(spec: Spec, version: str) -> None:
    assert lowest_version(spec) == version
    plain = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(spec, cdi_version=version)))
    check(plain)
    assert ".".join(map(str, needed(plain))) == version


def test_merging_keeps_the_order_and_the_later_of_two_on_one_path() -> None:
    first = ContainerEdits(
        ("A=1",), (DeviceNode("/dev/x"),), (Mount("/1", "/m"), Mount("/2", "/n")), (), (1,)
    )
    second = ContainerEdits(
        ("A=1", "B=2"),
        (DeviceNode("/dev/x", "/dev/y"),),
        (Mount("/3", "/m"),),
        (Hook("poststop", "/h"),),
        (1, 2),
    )
    assert merge((first, second, second)) == ContainerEdits(
        ("A=1", "B=2"),
        (DeviceNode("/dev/x", "/dev/y"),),
        (Mount("/3", "/m"), Mount("/2", "/n")),
        (Hook("poststop", "/h"),),
        (1, 2),
    )


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a-", "a b", "a\n", ".", "é"])
def test_names_that_cdi_refuses(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a CDI device"):
        check_name(name)
    with pytest.raises(ValueError, match="no name of a CDI device"):
        made.qualified(name)


@pytest.mark.parametrize("kind", ["", "slot", "/slot", "gaia.io/", "a/b/c", "1a/b", "a/1b"])
def test_kinds_that_cdi_refuses(kind: str) -> None:
    with pytest.raises(ValueError, match="vendor/class"):
        check_kind(kind)


def test_what_a_runtime_is_asked_for() -> None:
    assert made.qualified(NAME) == f"gaia.io/slot={NAME}"
    assert made.qualified("x", "gpu.example.com/slot") == "gpu.example.com/slot=x"
