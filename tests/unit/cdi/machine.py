"""One machine with an agent and a container, in the mount namespace that this is started in.

Prints what was seen, as JSON; `test_in_a_container.py` says what it should be.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from gaia_plugin import paths
from gaia_plugin.ledger import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.sim import CardConfig, SimConfig, make_sim
from gaia_plugin.slots.cdi import spec
from gaia_plugin.slots.cdi.files import SpecFiles
from gaia_plugin.slots.cdi.find import find_driver
from gaia_plugin.slots.container import ContainerDirectories
from gaia_plugin.slots.members import LocalMembers
from gaia_plugin.units import GIB, MEMORY_UNIT
from tests.unit.cdi.runtime_by_hand import Container, make_root, resolve

CARDS = tuple(f"GPU-{index + 1:02x}adbeef-0000-4000-8000-0123456789{index:02x}" for index in range(2))
UNITS = 4
LIMIT = UNITS * MEMORY_UNIT
UID = "0c5dbb8f-6a4e-4f3b-9d83-2f3a6f1c9e11"


def record(slot: str) -> SlotRecord:
    share = Share(UNITS, 100)
    return SlotRecord(
        slot=slot,
        owner=UID,
        name="main",
        generation=1,
        releasing=False,
        compute="hard",
        maximum=share,
        slices=(SliceRecord(CARDS[1], share, share, share),),
        process=None,
        process_start=None,
        created=0.0,
    )


class Machine:
    """A simulated driver, an agent's slots and a runtime's spec directory below one folder."""

    def __init__(self, folder: Path, shape: str) -> None:
        self.folder = folder
        self.shape = shape
        self.state = folder / "state"
        cards = {index: CardConfig(uuid=uuid) for index, uuid in enumerate(CARDS)}
        config = SimConfig(memory=8 * GIB, reserved=0, context=0, each=cards, state=folder / "sim-state")
        self.sim = make_sim(folder / "sim", config)
        self.specs = SpecFiles(folder / "cdi")
        self.directories = self.agent()

    def agent(self) -> ContainerDirectories:
        """Return what an agent that starts has."""
        members = LocalMembers(self.state / "slots")
        return ContainerDirectories(self.state, paths.shadow("container"), context_bytes=0, members=members)

    def grant(self, slot: str) -> None:
        """Make a slot as the agent does: page first, then the specs of both names."""
        capacity = [CardCapacity(uuid, index, "sim", 32) for index, uuid in enumerate(CARDS)]
        one = record(slot)
        self.directories.create(one, capacity, self.sim)
        driver = find_driver(self.sim, CARDS, self.state)
        edits = self.directories.edits(one, driver.edits([CARDS[1]]))
        self.specs.write(f"{slot}-memory", edits, UID)
        self.specs.write(f"{slot}-cores", spec.part("cores"), UID)

    def container(self, slot: str, program: Path) -> Container:
        """Make a container with the two devices of a slot."""
        made = make_root(self.folder / f"root-{len(list(self.folder.iterdir()))}", self.shape, program)
        names = [spec.qualified(f"{slot}-{part}") for part in ("cores", "memory")]
        made.apply(resolve(self.specs.directory, names))
        return made


def look(folder: Path, shape: str, program: Path) -> dict[str, Any]:
    """Return everything that was seen."""
    machine = Machine(folder, shape)
    machine.grant("alice")
    machine.grant("bob")
    box, other = machine.container("alice", program), machine.container("bob", program)
    probe = "/usr/bin/probe"
    amounts = (str(LIMIT), str(LIMIT + 1))
    seen: dict[str, Any] = {"environment": box.environment}
    ours = "/usr/lib/x86_64-linux-gnu" if shape == "debian" else "/usr/lib64"
    names = ("libcuda.so.1", "libcuda.so", "libcuda.so.580.95.05", f"{ours}/libcuda.so.580.95.05")
    seen["limit"] = {name: box.run(probe, "take", name, *amounts) for name in names}
    seen["compat"] = box.run(
        probe, "take", "libcuda.so.1", *amounts, LD_LIBRARY_PATH="/usr/local/cuda/compat"
    )
    bare = Container(box.root)  # as after `env -i`
    seen["bare"] = bare.run(probe, "take", "libcuda.so.1@1", *amounts)
    seen["bare, on another's card"] = bare.run(probe, "take", "libcuda.so.1@0", *amounts)
    inside = [
        "/run/gaia/limits",
        "/run/gaia/usage",
        "/run/gaia/driver/libcuda.so.1",
        f"{ours}/libcuda.so.580.95.05",
    ]
    seen["writable"] = {uid: box.run(probe, "open", *inside, uid=uid) for uid in (0, 1000)}
    seen["removable"] = box.run(probe, "change", *inside)
    shadow = machine.directories.path("alice") / "lib"
    seen["same file"] = {
        name: os.path.samefile(box.root / ours.lstrip("/") / name, next(shadow.iterdir()) / "libcuda.so.1")
        for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.580.95.05")
    }
    with box.start(probe, "hold", "libcuda.so.1", str(LIMIT)) as process:
        assert process.stdout is not None
        seen["held"] = [process.stdout.readline() for _ in range(5)]
        seen["claimed"] = machine.directories.usage("alice").used(0)
        seen["renewed while it runs"] = machine.directories.renew_usage("alice")
        machine.directories.close()
        machine.directories = machine.agent()  # the agent starts again under a running program
        machine.grant("alice")
        seen["claimed after a restart"] = machine.directories.usage("alice").used(0)
        process.communicate(timeout=30)
    machine.directories.store(record("alice"))
    seen["spoilt"] = spoil(machine, box, other, probe)
    machine.directories.renew_usage("alice")
    again = machine.container("alice", program)
    seen["started again"] = again.run(probe, "take", "libcuda.so.1", *amounts)
    machine.directories.remove("alice")
    seen["left"] = sorted(entry.name for entry in machine.directories.usages.iterdir())
    seen["still mounted"] = [line.split()[4] for line in mounted() if str(machine.directories.usages) in line]
    seen["slots"] = machine.directories.slots()
    return seen


def spoil(machine: Machine, box: Container, other: Container, probe: str) -> dict[str, Any]:
    """Do to a usage page what a tenant can."""
    page = "/run/gaia/usage"
    amounts = (str(LIMIT), str(LIMIT + 1))
    seen: dict[str, Any] = {"grown": box.run(probe, "grow", page, uid=1000)}
    seen["stretched"] = box.run(probe, "take", "libcuda.so.1", *amounts)
    seen["cut"] = box.run(probe, "cut", page, "10", uid=1000)
    seen["short"] = box.run(probe, "take", "libcuda.so.1", *amounts)
    usage = machine.directories.usage("alice")
    seen["damaged"] = usage.damaged
    seen["pending"] = machine.directories.pending(record("alice"))
    machine.directories.store(record("alice"))
    machine.grant("alice")
    seen["left to its container"] = machine.directories.usage("alice").damaged == usage.damaged
    seen["other"] = other.run(probe, "take", "libcuda.so.1", *amounts)
    return seen


def mounted() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


if __name__ == "__main__":
    print(json.dumps(look(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))))
