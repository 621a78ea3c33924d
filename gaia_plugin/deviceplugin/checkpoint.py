"""Reads the kubelet's checkpoint of devices: the only place that has a pod's UID beside a CDI name.

The kubelet replaces the file as a whole after each container's Allocates and before any PreStart. Newer
kubelets write `DeviceIDs` by NUMA node, older ones as a plain list.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from gaia_plugin.deviceplugin import sockets
from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2
from gaia_plugin.errors import Code, Refusal

NAME: Final = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one container got of one resource, init containers included.

    A pod that has ended stays in the file until the kubelet admits another one.
    """

    uid: str
    container: str
    resource: str
    ids: frozenset[str]
    cdi_names: tuple[str, ...]


class _Row(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str] | None] | list[str] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: str | None = None


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_Row] | None = None


class _File(msgspec.Struct, rename="pascal"):
    data: _Data


_decoder: Final = msgspec.json.Decoder(_File)


def entries(kubelet: Path) -> tuple[Entry, ...]:
    """Return what the kubelet has handed out; nothing when it has not written the file yet.

    Args:
        kubelet: the kubelet's directory.

    Raises:
        Refusal: code ``unavailable``, when the file cannot be read or understood.
    """
    path = sockets.plugin_directory(kubelet) / NAME
    try:
        found = _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return ()
    except OSError as fault:
        raise Refusal(
            Code.UNAVAILABLE, f"The kubelet's record of devices, {path}, cannot be read: {fault.strerror}."
        ) from fault
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise Refusal(
            Code.UNAVAILABLE, f"The kubelet's record of devices, {path}, is not understood: {fault}"
        ) from fault
    return tuple(
        Entry(row.pod_uid, row.container_name, row.resource_name, _ids(row), _cdi_names(row.alloc_resp))
        for row in found.data.pod_device_entries or ()
    )


def _ids(row: _Row) -> frozenset[str]:
    if isinstance(row.device_ids, dict):
        return frozenset(each for ids in row.device_ids.values() for each in ids or ())
    return frozenset(row.device_ids or ())


def _cdi_names(answer: str | None) -> tuple[str, ...]:
    """Return the CDI names of an encoded ContainerAllocateResponse; none if it is not one.

    Other plugins' answers stand in the same file, and one that is damaged must not hide the rest.
    """
    try:
        encoded = binascii.a2b_base64(answer or "")
        parsed = api_pb2.ContainerAllocateResponse.FromString(encoded)
    except (binascii.Error, ValueError, DecodeError):
        return ()
    return tuple(device.name for device in parsed.cdi_devices)
