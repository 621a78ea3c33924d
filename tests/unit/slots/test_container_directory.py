"""Slot directories of containers; who really mounts is tried in tests/unit/cdi."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.ledger import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots.cdi.driver import CUDA, NVML, DriverEdits, Private, covering
from gaia_plugin.slots.cdi.model import ContainerEdits
from gaia_plugin.slots.container import ContainerDirectories
from gaia_plugin.slots.library import library_version
from gaia_plugin.slots.members import LocalMembers
from gaia_plugin.slots.pages import layout

CARD = "GPU-00112233-4455-6677-8899-aabbccddeeff"
SLOT = "0c5dbb8f-6a4e-4f3b-9d83-2f3a6f1c9e11--main"
RECORD = SlotRecord(
    slot=SLOT,
    owner="0c5dbb8f-6a4e-4f3b-9d83-2f3a6f1c9e11",
    name="main",
    generation=1,
    releasing=False,
    compute="hard",
    maximum=Share(8, 25),
    slices=(SliceRecord(CARD, Share(8, 25), Share(8, 25), Share(8, 25)),),
    process=None,
    process_start=None,
    created=0.0,
)
CARDS = (CardCapacity(CARD, 0, "sim", 94),)


class FakeMounts:
    """Remembers what is mounted; what lies in a directory is gone when it is detached."""

    def __init__(self) -> None:
        self.sizes: dict[Path, int] = {}

    def tmpfs(self, path: Path, size: int) -> None:
        assert path not in self.sizes, "mounted twice"
        self.sizes[path] = size

    def mounted(self, path: Path) -> bool:
        return path in self.sizes

    def detach(self, path: Path) -> None:
        if self.sizes.pop(path, None) is not None:
            for entry in path.iterdir():
                entry.unlink()


@pytest.fixture
def mounts() -> FakeMounts:
    return FakeMounts()


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    (tmp_path / "shadows").mkdir()
    for name in (CUDA, NVML):
        (tmp_path / "shadows" / name).write_bytes(f"shadow {name}".encode())
    return tmp_path / "shadows"


@pytest.fixture
def directories(tmp_path: Path, shadows: Path, mounts: FakeMounts) -> Iterator[ContainerDirectories]:
    made = agent(tmp_path, shadows, mounts)
    yield made
    made.close()


def agent(tmp_path: Path, shadows: Path, mounts: FakeMounts) -> ContainerDirectories:
    state = tmp_path / "state"
    return ContainerDirectories(state, shadows, members=LocalMembers(state / "slots"), mounts=mounts)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_containers_directory_has_a_place_for_all_that_is_mounted_in_it(
    directories: ContainerDirectories, mounts: FakeMounts, tmp_path: Path
) -> None:
    before = os.umask(0o077)
    try:
        path = directories.create(RECORD, CARDS, tmp_path / "no driver is needed")
    finally:
        os.umask(before)
    version = next((path / "lib").iterdir())
    found = {str(entry.relative_to(path)): mode(entry) for entry in path.rglob("*")}
    assert found == {
        "driver": 0o755,
        "driver/libcuda.so.1": 0o644,
        "driver/libnvidia-ml.so.1": 0o644,
        "driver/sim.conf": 0o644,
        "driver/state": 0o644,
        "empty": 0o755,
        "lib": 0o755,
        f"lib/{version.name}": 0o755,
        f"lib/{version.name}/libcuda.so.1": 0o555,
        f"lib/{version.name}/libnvidia-ml.so.1": 0o555,
        "limits": 0o644,
        "usage": 0o644,
    }
    assert (mode(path), mode(path.parent), mode(directories.usages)) == (0o755, 0o700, 0o700)
    usage = directories.usage_path(SLOT)
    assert usage == tmp_path / "state" / "usage" / SLOT / "usage"
    assert mode(usage) == 0o666
    assert mounts.sizes == {usage.parent: layout()["usage.bytes"]}
    assert not directories.usage(SLOT).damaged
    assert directories.in_force(RECORD) == {CARD: Share(8, 25)}


def test_containers_share_the_memory_of_their_libraries(
    directories: ContainerDirectories, tmp_path: Path
) -> None:
    path = directories.create(RECORD, CARDS, tmp_path)
    library = next((path / "lib").iterdir()) / CUDA
    assert os.path.samefile(library, directories.libraries / library.parent.name / CUDA)


def test_a_new_library_comes_beside_the_old_one(
    directories: ContainerDirectories, shadows: Path, tmp_path: Path
) -> None:
    path = directories.create(RECORD, CARDS, tmp_path)
    (shadows / CUDA).write_bytes(b"newer")
    directories.create(RECORD, CARDS, tmp_path)
    contents = {version.joinpath(CUDA).read_text() for version in (path / "lib").iterdir()}
    assert contents == {"newer", f"shadow {CUDA}"}
    driver = DriverEdits(ContainerEdits(), (Private(CUDA, "/x"),), covering({CUDA: "1"}, ["/usr/lib64"]))
    mounted = {mount.container_path: mount.host_path for mount in directories.edits(RECORD, driver).mounts}
    assert Path(mounted["/usr/lib64/libcuda.so.1"]).read_text() == "newer"
    assert Path(mounted["/usr/lib64/libcuda.so.1"]).is_relative_to(path)
    assert mounted["/run/gaia"] == str(path)
    assert mounted["/run/gaia/usage"] == str(directories.usage_path(SLOT))


def test_an_agent_that_starts_again_finds_everything(
    directories: ContainerDirectories, shadows: Path, mounts: FakeMounts, tmp_path: Path
) -> None:
    path = directories.create(RECORD, CARDS, tmp_path)
    inodes = [each.stat().st_ino for each in (directories.usage_path(SLOT), path / "limits", path)]
    directories.close()
    again = agent(tmp_path, shadows, mounts)
    again.create(RECORD, CARDS, tmp_path)
    assert [each.stat().st_ino for each in (again.usage_path(SLOT), path / "limits", path)] == inodes
    again.close()


def test_after_a_reboot_the_usage_page_is_made_anew(
    directories: ContainerDirectories, mounts: FakeMounts, tmp_path: Path
) -> None:
    directories.create(RECORD, CARDS, tmp_path)
    mounts.detach(directories.usage_path(SLOT).parent)
    assert directories.usage(SLOT).damaged
    directories.create(RECORD, CARDS, tmp_path)
    assert not directories.usage(SLOT).damaged
    assert len(mounts.sizes) == 1


def test_a_damaged_usage_page_waits_for_its_container_to_start_again(
    directories: ContainerDirectories, tmp_path: Path
) -> None:
    directories.create(RECORD, CARDS, tmp_path)
    usage = directories.usage_path(SLOT)
    os.truncate(usage, 5)
    directories.create(RECORD, CARDS, tmp_path)
    assert usage.stat().st_size == 5
    assert directories.pending(RECORD) is None
    assert directories.renew_usage(SLOT)
    assert directories.pending(RECORD) == {CARD: 0}


def test_an_agent_killed_between_mount_and_page_goes_on(
    directories: ContainerDirectories, tmp_path: Path
) -> None:
    directories.create(RECORD, CARDS, tmp_path)
    directories.usage_path(SLOT).unlink()
    directories.create(RECORD, CARDS, tmp_path)
    assert not directories.usage(SLOT).damaged


def test_removing_unmounts_and_may_be_repeated(
    directories: ContainerDirectories, mounts: FakeMounts, tmp_path: Path
) -> None:
    path = directories.create(RECORD, CARDS, tmp_path)
    directories.remove(SLOT)
    directories.remove(SLOT)
    assert mounts.sizes == {}
    assert list(path.parent.iterdir()) == list(directories.usages.iterdir()) == []


def test_the_versions_of_the_two_variants_are_different_ones(
    directories: ContainerDirectories, shadows: Path, tmp_path: Path
) -> None:
    path = directories.create(RECORD, CARDS, tmp_path)
    local = library_version(directories.libraries, shadows, shadows)
    assert local.name != next((path / "lib").iterdir()).name


def test_who_may_not_mount_is_told_what_to_do(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from gaia_plugin.errors import Unusable\n"
        "from gaia_plugin.slots.mounts import LinuxMounts, _libc\n"
        "mounts = LinuxMounts(); _libc()\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: mounts.tmpfs(Path(sys.argv[1]), 4096)\n"
        "except Unusable as told: print(told)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the agent may not mount. Run it as root with CAP_SYS_ADMIN" in done.stdout


def test_a_mount_that_fails_otherwise_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(Unusable if os.geteuid() else FileNotFoundError, match="nowhere"):
        ContainerDirectories(tmp_path, tmp_path)._mounts.tmpfs(tmp_path / "nowhere", 4096)
