"""The driver by its files, the simulated one, and which of all is chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.slots.cdi import libraries, simulated
from gaia_plugin.slots.cdi.driver import CUDA, NVML
from gaia_plugin.slots.cdi.find import find_driver
from gaia_plugin.slots.cdi.libraries import Libraries, node_paths
from gaia_plugin.slots.cdi.simulated import Simulated
from gaia_plugin.slots.cdi.toolkit import Toolkit
from tests.unit.cdi.test_toolkit import information
from tests.unit.cdi.toolkit_spec import DEBIAN, VERSION, A, B, toolkit_spec

USUAL = (DEBIAN, "/usr/lib64")
NODES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


@pytest.fixture(params=["usr/lib/x86_64-linux-gnu", "usr/lib64"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The libraries' directory of a driver below a root of its own, as packages install it."""
    place = tmp_path / "root" / request.param
    place.mkdir(parents=True)
    for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm", "libGLX_nvidia"):
        (place / f"{name}.so.{VERSION}").touch()
        (place / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    (place / "libcuda.so").symlink_to("libcuda.so.1")
    (place / "libnvidia-nvvm.so.4").symlink_to(f"/{request.param}/libnvidia-nvvm.so.{VERSION}")
    (tmp_path / "root/usr/bin").mkdir()
    (tmp_path / "root/usr/bin/nvidia-smi").touch()
    (tmp_path / "root/dev").mkdir()
    for name in NODES:
        (tmp_path / "root/dev" / name).touch()
    information(tmp_path / "proc", "0000:01:00.0", A, 1)
    return place


def test_every_library_lies_under_its_names_where_every_loader_looks(tmp_path: Path, directory: Path) -> None:
    root = tmp_path / "root"
    found = Libraries(directory, root=root, proc=tmp_path / "proc", usual=USUAL).edits([A])
    host = f"/{directory.relative_to(root)}"
    assert {each.name: each.host for each in found.private} == {
        CUDA: f"{host}/libcuda.so.{VERSION}",
        NVML: f"{host}/libnvidia-ml.so.{VERSION}",
    }
    mounts = {mount.container_path: mount.host_path for mount in found.edits.mounts}
    assert mounts == {
        "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
        **{
            f"{each}/libnvidia-{name}": f"{host}/libnvidia-{name.partition('.so')[0]}.so.{VERSION}"
            for each in USUAL
            for name in (
                f"ptxjitcompiler.so.{VERSION}",
                "ptxjitcompiler.so.1",
                f"nvvm.so.{VERSION}",
                "nvvm.so.4",
                "nvvm.so.1",
            )
        },
    }
    assert [node.path for node in found.edits.device_nodes] == [
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]
    for shadow, stem in ((CUDA, "libcuda.so"), (NVML, "libnvidia-ml.so")):
        ends = ("", ".1", f".{VERSION}")
        assert set(found.covered[shadow]) == {f"{each}/{stem}{end}" for each in USUAL for end in ends}


def test_a_driver_containers_files_keep_its_place_on_the_node(tmp_path: Path, directory: Path) -> None:
    root = tmp_path / "root"
    found = Libraries(directory, root=tmp_path, proc=tmp_path / "proc", usual=USUAL)
    (tmp_path / "dev").symlink_to(root / "dev")
    mounts = {mount.container_path: mount.host_path for mount in found.edits([A]).edits.mounts}
    assert mounts["/usr/bin/nvidia-smi"] == "/root/usr/bin/nvidia-smi"
    # the link is absolute: it means a path below the driver's own root
    host = f"/{directory.relative_to(tmp_path)}"
    assert mounts["/usr/lib64/libnvidia-nvvm.so.4"] == f"{host}/libnvidia-nvvm.so.{VERSION}"


@pytest.mark.parametrize(
    ("present", "cards", "known", "wanted"),
    [
        (NODES, (A,), {A: 0}, ("nvidia0", *NODES[2:])),
        (NODES, (B, A), {A: 0, B: 1}, ("nvidia1", "nvidia0", *NODES[2:])),
        (NODES[:4], (A,), {A: 0}, ("nvidia0", *NODES[2:4])),
    ],
)
def test_device_nodes(
    present: tuple[str, ...], cards: tuple[str, ...], known: dict[str, int], wanted: tuple[str, ...]
) -> None:
    assert node_paths(frozenset(present), cards, known) == tuple(f"/dev/{name}" for name in wanted)


@pytest.mark.parametrize(
    ("present", "known", "sentence"),
    [
        (NODES, {}, f"does not tell the device node of {A}"),
        (NODES, {A: 7}, "There is no /dev/nvidia7"),
        (("nvidia0", "nvidiactl"), {A: 0}, "There is no /dev/nvidia-uvm. `nvidia-modprobe -c 0 -u`"),
    ],
)
def test_a_missing_device_node_is_told(
    present: tuple[str, ...], known: dict[str, int], sentence: str
) -> None:
    with pytest.raises(Unusable, match=sentence.replace(".", r"\.")):
        node_paths(frozenset(present), (A,), known)


def test_what_an_older_driver_left_is_not_taken_for_the_one_in_use() -> None:
    found = {
        "libcuda.so.470.57.02": "/x/libcuda.so.470.57.02",
        "libcuda.so.1": "/x/libcuda.so.580.1",
        "libcuda.so.580.1": "/x/libcuda.so.580.1",
        "libnvidia-ml.so.1": "/x/libnvidia-ml.so.1",
    }
    driver = libraries.driver_edits(found, {}, (), ["/usr/lib64"])
    assert [each.host for each in driver.private] == ["/x/libcuda.so.580.1", "/x/libnvidia-ml.so.1"]
    assert driver.covered[CUDA] == tuple(f"/usr/lib64/libcuda.so{end}" for end in (".1", ".580.1", ""))


def test_a_missing_library_is_told() -> None:
    with pytest.raises(Unusable, match=r"has no libnvidia-ml\.so\.1: no container"):
        libraries.driver_edits({"libcuda.so.1": "/x/libcuda.so.1"}, {}, (), USUAL)


CONF = "cards = 2\nname = Card\ncard.1.uuid = GPU-old\n# state = /a\nstate = /dev/shm/x # there\n"


def test_the_simulations_configuration_for_containers_names_cards_and_state() -> None:
    assert simulated.inside(CONF, (A, B)).splitlines() == [
        "cards = 2",
        "name = Card",
        "# state = /a",
        f"card.0.uuid = {A}",
        f"card.1.uuid = {B}",
        "state = /run/gaia/driver/state",
        "shared = 1",
    ]


@pytest.mark.parametrize(
    ("key", "values"),
    [("cards", ["2"]), ("state", ["/dev/shm/x"]), ("driver", []), ("card.1.uuid", ["GPU-old"])],
)
def test_values_of_a_configuration(key: str, values: list[str]) -> None:
    assert simulated.values_of(CONF, key) == values


@pytest.mark.parametrize(("line", "version"), [("", "580.95.05"), ("driver = 570.1\n", "570.1")])
def test_the_simulated_driver_in_a_container(tmp_path: Path, line: str, version: str) -> None:
    sim, conf = tmp_path / "sim", tmp_path / "state" / "sim.conf"
    sim.mkdir()
    (sim / "sim.conf").write_text(CONF + line)
    driver = Simulated(sim, (A, B), conf, state=lambda _: Path("/dev/shm/x"), usual=USUAL)
    found = driver.edits([B])
    assert {each.name: (each.host, each.writable) for each in found.private} == {
        CUDA: (f"{sim}/libcuda.so.1", False),
        NVML: (f"{sim}/libnvidia-ml.so.1", False),
        "sim.conf": (str(conf), False),
        "state": ("/dev/shm/x", True),
    }
    assert f"/usr/lib64/libcuda.so.{version}" in found.covered[CUDA]
    assert not found.edits
    assert f"card.1.uuid = {B}" in conf.read_text()
    assert conf.stat().st_mode & 0o777 == 0o644
    with pytest.raises(Unusable, match="has no card GPU-x"):
        driver.edits(["GPU-x"])


def test_the_toolkit_is_asked_where_it_is_else_the_files(tmp_path: Path) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    where = {"state": tmp_path / "state", "root": tmp_path, "specs": [Path("/etc/cdi")]}
    assert isinstance(find_driver(tmp_path, [A], **where), Libraries)
    (tmp_path / "etc/cdi/nvidia.json").write_text(json.dumps(toolkit_spec()))
    found = find_driver(tmp_path, [A], **where)
    assert isinstance(found, Toolkit)
    assert found.path == tmp_path / "etc/cdi/nvidia.json"
