"""The kubelet's `kubelet_internal_checkpoint`, as it writes and reads it."""

from __future__ import annotations

import base64
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "kubelet_internal_checkpoint"


@dataclass(frozen=True)
class Held:
    """Devices of one resource in one container, with the plugin's answer as it came."""

    uid: str
    container: str
    resource: str
    ids: frozenset[str]
    answer: bytes


def write(directory: Path, held: list[Held], registered: dict[str, list[str]], *, by_numa: bool) -> None:
    """Write the file as a whole.

    `by_numa` False: the shape of kubelets before 1.20, whose DeviceIDs were a plain list.
    """
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": each.uid,
                "ContainerName": each.container,
                "ResourceName": each.resource,
                "DeviceIDs": {"-1": list(each.ids)} if by_numa else list(each.ids),
                "AllocResp": base64.b64encode(each.answer).decode(),
            }
            for each in held
        ]
        or None,
        "RegisteredDevices": registered,
    }
    # the real sum is over Go's own print of the structure; nobody but the kubelet can check it
    text = json.dumps(
        {"Data": data, "Checksum": zlib.crc32(json.dumps(data).encode())}, separators=(",", ":")
    )
    temporary = directory / f".{NAME}"
    temporary.touch(0o600)
    temporary.write_text(text)
    os.replace(temporary, directory / NAME)


def read(directory: Path) -> tuple[list[Held], dict[str, list[str]]]:
    try:
        data: dict[str, Any] = json.loads((directory / NAME).read_text())["Data"]
    except FileNotFoundError:
        return [], {}
    held = []
    for row in data["PodDeviceEntries"] or ():
        shape = row["DeviceIDs"]
        ids = [each for part in shape.values() for each in part] if isinstance(shape, dict) else shape
        answer = base64.b64decode(row["AllocResp"])
        held.append(Held(row["PodUID"], row["ContainerName"], row["ResourceName"], frozenset(ids), answer))
    return held, data["RegisteredDevices"]
