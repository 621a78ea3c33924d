"""The edits of a slot, and the spec that puts them behind a name. Nothing here touches a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gaia_plugin.paths import CONTAINER_SLOT
from gaia_plugin.slots.cdi.driver import READ_ONLY, WRITABLE, DriverEdits
from gaia_plugin.slots.cdi.model import (
    ContainerEdits,
    Device,
    Mount,
    Spec,
    check_kind,
    check_name,
    lowest_version,
    merge,
)

KIND: Final = "gaia.io/slot"
EMPTY: Final = "empty"
"""A directory in the slot's directory that stays empty."""

_COMPAT: Final = "/usr/local/cuda/compat"
"""CUDA's forward-compatibility libraries, which many images put first into LD_LIBRARY_PATH. What is there
is a libcuda.so.1 of the image's own, in front of ours."""


def qualified(name: str, kind: str = KIND) -> str:
    """Return what a runtime is asked for: ``gaia.io/slot=<name>``."""
    return f"{check_kind(kind)}={check_name(name)}"


def edits(
    slot_directory: Path,
    cards: Sequence[str],
    driver: DriverEdits,
    shadow_files: Mapping[str, Path],
    *,
    usage: Path,
) -> ContainerEdits:
    """Return all that the container of a slot gets.

    No variable carries a limit, and no variable is needed to find the shadow or the pages.

    Args:
        slot_directory: on the host; the container sees it read-only.
        cards: UUIDs, in the order of the slot's slices.
        driver: what the driver needs for these cards.
        shadow_files: host paths of the shadow libraries by name.
        usage: host path of the usage page.
    """
    shadows = tuple(
        Mount(str(shadow_files[shadow]), path, READ_ONLY)
        for shadow, covered in driver.covered.items()
        for path in covered
    )
    own = ContainerEdits(
        env=_environment(cards),
        mounts=(
            Mount(str(slot_directory), str(CONTAINER_SLOT), READ_ONLY),
            Mount(str(usage), str(CONTAINER_SLOT / "usage"), WRITABLE),
            *(private.mount() for private in driver.private),
            *shadows,
            Mount(str(slot_directory / EMPTY), _COMPAT, READ_ONLY),
        ),
    )
    names = {variable.partition("=")[0] for variable in own.env}
    kept = tuple(each for each in driver.edits.env if each.partition("=")[0] not in names)
    whole = merge((msgspec.structs.replace(driver.edits, env=kept), own))
    # a mount point has to be there before what is mounted below it; runtimes sort so, too
    ordered = sorted(whole.mounts, key=lambda mount: mount.container_path.count("/"))
    return msgspec.structs.replace(whole, mounts=tuple(ordered))


def part(label: str) -> ContainerEdits:
    """Return edits that do no harm, for a name of the container that has nothing of its own.

    The kubelet asks for each resource alone, so a container has a name for each, and CDI refuses a device
    without edits.
    """
    return ContainerEdits(env=(f"GAIA_SLICE_PART={label}",))


def spec(name: str, edits: ContainerEdits, owner: str, *, kind: str = KIND) -> dict[str, Any]:
    """Return the spec that gives `edits` to whoever is given the device `name`.

    Args:
        name: without the kind.
        edits: at least one.
        owner: UID of the pod that it was made for. A spec that exists proves nothing; this does.
        kind: of all our devices.

    Raises:
        ValueError: no edits, or a name that CDI does not allow.
    """
    if not edits:
        raise ValueError(f"The CDI device {name} would change nothing, and runtimes drop such a file.")
    device = Device(check_name(name), edits)
    made = Spec("", check_kind(kind), (device,), annotations={owner_key(kind): owner})
    made = msgspec.structs.replace(made, cdi_version=lowest_version(made))
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return plain


def owner_key(kind: str = KIND) -> str:
    """Return the annotation of a spec that tells its owner's UID."""
    return f"{kind.partition('/')[0]}/owner"


def _environment(cards: Sequence[str]) -> tuple[str, ...]:
    return (
        f"CUDA_VISIBLE_DEVICES={','.join(cards)}",
        "NVIDIA_VISIBLE_DEVICES=void",  # a legacy runtime adds nothing of its own
        "TF_FORCE_GPU_ALLOW_GROWTH=true",
        "XLA_PYTHON_CLIENT_PREALLOCATE=false",
    )
