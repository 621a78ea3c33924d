"""The driver as NVIDIA's toolkit describes it, and what of that a container gets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.slots.cdi import minors, toolkit
from gaia_plugin.slots.cdi import spec as made
from gaia_plugin.slots.cdi.driver import CUDA, NVML, DriverEdits
from gaia_plugin.slots.cdi.model import Spec
from tests.unit.cdi.cdi_rules import check
from tests.unit.cdi.toolkit_spec import DEBIAN, VERSION, A, B, hook, toolkit_spec

USUAL = (DEBIAN, "/usr/lib64")
KNOWN = {A: 0, B: 1}


def edits(cards: tuple[str, ...] = (A,), **shape: Any) -> DriverEdits:
    spec = msgspec.convert(toolkit_spec(**shape), Spec)
    return toolkit.driver_edits(spec, cards, KNOWN, USUAL)


def nodes(found: DriverEdits) -> list[str]:
    return [node.path for node in found.edits.device_nodes]


COMMON = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


@pytest.mark.parametrize("names", ["uuid", "index"])
@pytest.mark.parametrize(
    ("cards", "own"),
    [
        ((A,), ["/dev/nvidia0", "/dev/dri/renderD128"]),
        ((B,), ["/dev/nvidia1", "/dev/dri/renderD129"]),
        ((B, A), ["/dev/nvidia1", "/dev/dri/renderD129", "/dev/nvidia0", "/dev/dri/renderD128"]),
    ],
)
def test_a_container_gets_the_nodes_of_its_cards_and_no_others(
    names: str, cards: tuple[str, ...], own: list[str]
) -> None:
    assert nodes(edits(cards, names=names)) == COMMON + own


def test_an_index_is_not_believed() -> None:
    # the card with index 1 has the minor number 0 since the first fell off the bus
    spec = msgspec.convert(toolkit_spec(names="index"), Spec)
    assert nodes(toolkit.driver_edits(spec, (B,), {B: 0}, USUAL))[3] == "/dev/nvidia0"


@pytest.mark.parametrize("known", [{}, {B: 7}])
def test_a_card_that_the_spec_does_not_know_is_refused(known: dict[str, int]) -> None:
    spec = msgspec.convert(toolkit_spec(names="index"), Spec)
    with pytest.raises(Unusable, match=f"does not know the card {B}. Make it again with `nvidia-ctk cdi"):
        toolkit.driver_edits(spec, (B,), known, USUAL)


def test_the_real_libraries_move_behind_the_shadow_and_nowhere_else() -> None:
    found = edits(host="/run/nvidia/driver")
    assert {each.name: each.host for each in found.private} == {
        CUDA: f"/run/nvidia/driver{DEBIAN}/libcuda.so.{VERSION}",
        NVML: f"/run/nvidia/driver{DEBIAN}/libnvidia-ml.so.{VERSION}",
    }
    assert not [each for each in found.edits.mounts if "libcuda" in each.host_path]
    assert not [each for each in found.edits.mounts if "libnvidia-ml" in each.host_path]


@pytest.mark.parametrize("directory", [DEBIAN, "/usr/lib64", "/opt/driver"])
def test_the_shadow_covers_the_drivers_directory_and_the_usual_ones(directory: str) -> None:
    covered = edits(directory=directory).covered
    for shadow, stem in ((CUDA, "libcuda.so"), (NVML, "libnvidia-ml.so")):
        assert set(covered[shadow]) == {
            f"{each}/{stem}{end}" for each in {directory, *USUAL} for end in ("", ".1", f".{VERSION}")
        }


def test_other_files_of_the_driver_stay_where_the_toolkit_puts_them() -> None:
    mounts = [mount.container_path for mount in edits().edits.mounts]
    assert mounts == [
        f"{DEBIAN}/libnvidia-ptxjitcompiler.so.{VERSION}",
        f"{DEBIAN}/libnvidia-nvvm.so.{VERSION}",
        "/usr/bin/nvidia-smi",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    ]


def test_without_the_hook_for_the_loaders_cache_libraries_lie_where_every_loader_looks() -> None:
    mounts = {mount.container_path: mount.host_path for mount in edits(cache=False).edits.mounts}
    compiler = f"{DEBIAN}/libnvidia-ptxjitcompiler.so.{VERSION}"
    for directory in USUAL:
        assert mounts[f"{directory}/libnvidia-ptxjitcompiler.so.{VERSION}"] == compiler
        assert mounts[f"{directory}/libnvidia-ptxjitcompiler.so.1"] == compiler
        assert mounts[f"{directory}/libnvidia-nvvm.so.4"] == f"{DEBIAN}/libnvidia-nvvm.so.{VERSION}"
    assert "/usr/lib64/nvidia-smi" not in mounts


def test_hooks_stay_but_for_what_goes_round_the_shadow() -> None:
    assert [list(each.args) for each in edits().edits.hooks] == [
        each["args"]
        for each in (
            # a link over a mounted path cannot be made, and the container would not start
            hook("create-symlinks", "--link", f"../libnvidia-allocator.so.1::{DEBIAN}/gbm/nvidia-drm_gbm.so"),
            hook("create-symlinks", f"--link=libnvidia-opticalflow.so.1::{DEBIAN}/libnvidia-opticalflow.so"),
            hook("update-ldcache", "--folder", DEBIAN),
            hook("disable-device-node-modification"),
            hook("create-symlinks", "--link", "../renderD128::/dev/dri/by-path/pci-0"),
        )
    ]


def test_the_whole_keeps_cdis_rules() -> None:
    shadows = {name: Path("/state/lib", name) for name in (CUDA, NVML)}
    whole = made.edits(Path("/state/slots/s"), (A, B), edits((A, B)), shadows, usage=Path("/state/usage/s"))
    check(made.spec("0a-1b", whole, "uid"))
    assert "NVIDIA_VISIBLE_DEVICES=void" in whole.env


def test_a_spec_without_a_driver_is_refused() -> None:
    plain = toolkit_spec()
    plain["containerEdits"]["mounts"] = []
    with pytest.raises(Unusable, match=r"has no libcuda\.so\.1 and no libnvidia-ml\.so\.1"):
        toolkit.driver_edits(msgspec.convert(plain, Spec), (A,), KNOWN, USUAL)


def write(path: Path, spec: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(spec))
    else:
        path.write_bytes(msgspec.yaml.encode(spec))
    return path


@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.json", "nvidia.com-gpu.yaml"])
def test_the_toolkits_file_is_found_by_its_kind(tmp_path: Path, name: str) -> None:
    wanted = write(tmp_path / "etc" / name, toolkit_spec())
    write(tmp_path / "etc" / "nvidia-z.yaml", toolkit_spec() | {"kind": "management.nvidia.com/gpu"})
    (tmp_path / "etc" / "other.yaml").write_text("{]")
    assert toolkit.find([tmp_path / "nowhere", tmp_path / "etc"]) == wanted


def test_of_two_the_one_that_a_runtime_takes_counts(tmp_path: Path) -> None:
    for directory in ("etc", "run"):
        write(tmp_path / directory / "nvidia.yaml", toolkit_spec())
    assert toolkit.find([tmp_path / "etc", tmp_path / "run"]) == tmp_path / "run" / "nvidia.yaml"
    assert toolkit.find([tmp_path / "nowhere"]) is None


@pytest.mark.parametrize("text", ["", "[]", "kind: [", "kind: nvidia.com/gpu", "\x00"])
def test_a_broken_file_is_told_with_the_command_that_makes_it_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text(text)
    with pytest.raises(Unusable, match=r"nvidia\.yaml is not one .* `nvidia-ctk cdi generate"):
        toolkit.read(path)


def information(proc: Path, pci: str, uuid: str, minor: int) -> None:
    place = proc / pci
    place.mkdir(parents=True, exist_ok=True)
    lines = [
        "Model: \t\t NVIDIA H100",
        f"GPU UUID: \t {uuid}",
        f"Device Minor: \t {minor}",
        "GPU Excluded:\t No",
    ]
    (place / "information").write_text("\n".join(lines) + "\n")


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "nvidia.json", toolkit_spec(names="index"))
    information(tmp_path / "proc", "0000:01:00.0", A, 0)
    driver = toolkit.Toolkit(path, proc=tmp_path / "proc", usual=USUAL)
    assert "/dev/nvidia0" in nodes(driver.edits([A]))
    newer = toolkit_spec(names="index")
    newer["containerEdits"]["deviceNodes"].append({"path": "/dev/nvidia-modeset"})
    write(tmp_path / "aside.json", newer)
    os.replace(tmp_path / "aside.json", path)
    assert "/dev/nvidia-modeset" in nodes(driver.edits([A]))
    path.unlink()
    with pytest.raises(Unusable, match="is gone"):
        driver.edits([A])


def test_minor_numbers_are_the_drivers(tmp_path: Path) -> None:
    information(tmp_path, "0000:01:00.0", A, 3)
    information(tmp_path, "0000:02:00.0", B, 0)
    (tmp_path / "0000:03:00.0").mkdir()
    (tmp_path / "0000:03:00.0" / "information").write_text("GPU UUID: GPU-????????\nDevice Minor: 1\n")
    assert minors.by_uuid(tmp_path) == {A: 3, B: 0}
    assert minors.by_uuid(tmp_path / "nowhere") == {}
