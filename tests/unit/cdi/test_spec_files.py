"""Spec files: written whole, told by owner, removed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from gaia_plugin.slots.cdi.files import SpecFiles, Written
from gaia_plugin.slots.cdi.model import ContainerEdits
from gaia_plugin.slots.cdi.spec import part
from tests.unit.cdi.cdi_rules import check

NAME = "0123456789abcdef-fedcba9876543210"


@pytest.fixture
def files(tmp_path: Path) -> SpecFiles:
    return SpecFiles(tmp_path / "cdi")


def test_a_spec_is_written_for_everybody_to_read(files: SpecFiles) -> None:
    path = files.write(NAME, part("a"), "uid-1")
    assert path == files.directory / f"gaia.io-slot_{NAME}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    check(json.loads(path.read_text()))
    assert [entry.name for entry in files.directory.iterdir()] == [path.name]


def test_a_spec_belongs_to_the_pod_it_was_last_made_for(files: SpecFiles) -> None:
    path = files.write(NAME, part("a"), "uid-1")
    before = path.stat().st_ino
    files.write(NAME, part("b"), "uid-2")
    assert files.owner(NAME) == "uid-2"
    assert "GAIA_SLICE_PART=b" in path.read_text()
    assert path.stat().st_ino != before  # a runtime never reads half a file
    assert files.owner("nobodys") == ""
    assert files.read("nobodys") is None
    found = files.read(NAME)
    assert found is not None
    assert found.devices[0].container_edits == part("b")


def test_ours_are_listed_with_their_owners_and_others_are_left_alone(files: SpecFiles) -> None:
    assert files.listed() == ()
    files.write("b", part("x"), "uid-2")
    files.write("a", part("x"), "uid-1")
    SpecFiles(files.directory, "gpu.example.com/slot").write("c", part("x"), "uid-3")
    (files.directory / "nvidia.yaml").write_text("kind: nvidia.com/gpu")
    (files.directory / "gaia.io-slot_damaged.json").write_text('{"cdiVersion": ')
    assert files.listed() == (Written("a", "uid-1"), Written("b", "uid-2"), Written("damaged", ""))


def test_removing_may_be_repeated(files: SpecFiles) -> None:
    files.remove(NAME)
    files.write(NAME, part("a"), "uid-1")
    files.remove(NAME)
    files.remove(NAME)
    assert files.listed() == ()


def test_what_a_killed_agent_left_is_removed(files: SpecFiles) -> None:
    path = files.write(NAME, part("a"), "uid-1")
    (files.directory / ".gaia.io-slot_x.new").touch()
    (files.directory / ".other-slot_x.new").touch()
    files.tidy()
    assert sorted(entry.name for entry in files.directory.iterdir()) == [".other-slot_x.new", path.name]


def test_an_empty_edit_and_a_bad_name_write_nothing(files: SpecFiles) -> None:
    with pytest.raises(ValueError, match="would change nothing"):
        files.write(NAME, ContainerEdits(), "uid-1")
    for name in ("../x", "a/b", ""):
        for act in (
            lambda name=name: files.write(name, part("a"), "u"),
            lambda name=name: files.remove(name),
        ):
            with pytest.raises(ValueError, match="no name of a CDI device"):
                act()
    assert files.listed() == ()


def test_a_directory_that_cannot_be_written_keeps_the_old_spec(files: SpecFiles) -> None:
    path = files.write(NAME, part("a"), "uid-1")
    before = path.read_bytes()
    (files.directory / f".gaia.io-slot_{NAME}.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.write(NAME, part("b"), "uid-2")
    assert path.read_bytes() == before
