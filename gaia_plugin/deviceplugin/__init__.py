"""The kubelet's side of a node: its device plugin interface, PodResources and its checkpoint file.

Nothing here knows of cards, the ledger or pods; a `Handler` decides what a container gets.
"""

from gaia_plugin.deviceplugin.advertise import check_size, core_ids, devices, healthy_free, memory_ids
from gaia_plugin.deviceplugin.checkpoint import Entry, entries
from gaia_plugin.deviceplugin.plugin import Device, Handler, Plugin
from gaia_plugin.deviceplugin.podresources import PodResources
from gaia_plugin.deviceplugin.quiet import Quiet
from gaia_plugin.deviceplugin.registration import keep_registered

__all__ = [
    "Device",
    "Entry",
    "Handler",
    "Plugin",
    "PodResources",
    "Quiet",
    "check_size",
    "core_ids",
    "devices",
    "entries",
    "healthy_free",
    "keep_registered",
    "memory_ids",
]
