"""What `gaia doctor` looks at on a node of a cluster: what the agent's pod has, and who answers it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gaia_plugin.commands.doctor import Finding
from gaia_plugin.errors import Unusable

if TYPE_CHECKING:
    from gaia_plugin.kube.client import Api
    from gaia_plugin.kube.gpunode import Status

_INITIAL_PIDS: Final = 0xEFFFFFFC
"""Inode of the machine's first pid namespace, in every Linux."""

_SYS_ADMIN: Final = 21
_ROOT: Final = Path("/")


@dataclass(frozen=True, slots=True)
class Told:
    """What a node's agent was told, with paths as this process sees them."""

    node: str
    state: Path
    kubelet: Path
    cdi: Path
    root: Path
    kubeconfig: Path | None
    driver: Path | None
    registered: dict[str, float]
    domain: str = "gaia.io"


def told(state: Path | None) -> Told | None:
    """Return what this node's agent was told, by its note or by the environment; None: this is no node.

    Args:
        state: the state directory that was asked for; None: any.

    Raises:
        Unusable: the environment is a node's, and one of its variables means nothing.
    """
    from gaia_plugin.api import whose

    where = state or whose.node_state()
    note = {} if where is None else whose.noted(where)
    if where is not None and note.get("kubernetes") is True:
        return _of_note(where, note)
    if "GAIA_NODE_NAME" not in os.environ:
        return None
    from gaia_plugin.agent.settings import read_settings

    own = read_settings(state=state)
    return Told(
        own.node_name,
        own.state,
        own.kubelet_dir,
        own.cdi_dir,
        own.driver_root,
        own.kubeconfig,
        own.driver,
        {},
        own.domain,
    )


def _of_note(state: Path, note: dict[str, Any]) -> Told:
    def path(key: str, otherwise: str = "/") -> Path:
        return Path(str(note.get(key) or otherwise))

    root, driver = path("driver_root"), path("driver")
    if not (root / "proc").is_dir():  # looked at from the node itself, not from the agent's pod
        with suppress(ValueError):
            driver = _ROOT / driver.relative_to(root)
        root = _ROOT
    kubeconfig = path("kubeconfig") if note.get("kubeconfig") else None
    registered = note.get("registered")
    return Told(
        str(note.get("node", "")),
        state,
        path("kubelet_dir", "/var/lib/kubelet"),
        path("cdi_dir", "/var/run/cdi"),
        root,
        kubeconfig,
        driver if note.get("driver") else None,
        registered if isinstance(registered, dict) else {},
        str(note.get("domain") or "gaia.io"),
    )


def findings(node: Told) -> Iterator[Finding]:
    """Yield what is so on a node."""
    from gaia_plugin.agent.pods import footing

    kubelet = footing.kubelet_pid(node.kubelet)
    yield _kubelet(node, kubelet)
    yield _registered(node)
    yield _pids(kubelet, os.stat("/proc/self/ns/pid").st_ino)
    yield _mounting(node, Path("/proc/self/status").read_text(), Path("/proc/self/mountinfo").read_text())
    yield _directory(node.cdi)
    yield from _server(node)


def _kubelet(node: Told, pid: int | None) -> Finding:
    from gaia_plugin.deviceplugin.sockets import registration_socket

    socket = registration_socket(node.kubelet)
    if pid is not None:
        return Finding("kubelet", "good", f"takes device plugins at {socket}")
    return Finding(
        "kubelet",
        "broken",
        f"nobody answers at {socket}; is it running, and is GAIA_KUBELET_DIR its directory?",
    )


def _registered(node: Told) -> Finding:
    from gaia_plugin.deviceplugin.sockets import registration_socket

    try:
        since = registration_socket(node.kubelet).stat().st_mtime
    except OSError:
        since = float("inf")
    # one is registered with the kubelet that runs now if that was after it made its socket
    valid = {name: at for name, at in node.registered.items() if at >= since}
    if len(valid) < 2:
        return Finding(
            "registered", "broken", "the agent is not registered with this kubelet; its pod's log says why."
        )
    at = datetime.fromtimestamp(max(valid.values()), UTC).isoformat(timespec="seconds")
    return Finding("registered", "good", f"{' and '.join(sorted(valid))} since {at}")


def _pids(kubelet: int | None, namespace: int) -> Finding:
    if kubelet == 0:
        return Finding(
            "hostPID",
            "broken",
            "the node's processes are not seen here: set hostPID: true in the pod's spec.",
        )
    if namespace == _INITIAL_PIDS:
        return Finding("hostPID", "good", "all processes of the machine are seen")
    if kubelet is None:
        return Finding("hostPID", "note", "without the kubelet it cannot be told whether it is set.")
    return Finding(
        "hostPID",
        "note",
        "the node's processes are seen, but the node is a container itself: NVIDIA's driver tells the "
        "machine's pids, which are others.",
    )


def _mounting(node: Told, status: str, table: str) -> Finding:
    from gaia_plugin.agent.pods import footing

    may = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    if not int(may, 16) >> _SYS_ADMIN & 1:
        return Finding(
            "mounts", "broken", "this process may not mount: set privileged: true in the pod's spec."
        )
    try:
        if node.root != _ROOT:
            footing.check_mounts(node.state, table)
    except Unusable as unusable:
        return Finding("mounts", "broken", str(unusable))
    return Finding("mounts", "good", f"may be made, and the node sees them below {node.state}")


def _directory(cdi: Path) -> Finding:
    if cdi.is_dir() and os.access(cdi, os.W_OK | os.X_OK):
        return Finding("CDI", "good", f"specs can be written to {cdi}")
    return Finding("CDI", "broken", f"{cdi} is not there or cannot be written; mount the node's there.")


def _server(node: Told) -> Iterator[Finding]:
    import asyncio

    from gaia_plugin.kube.errors import ApiError
    from gaia_plugin.slots.cdi import runtime

    try:
        reported, written = asyncio.run(_reported(node))
    except Unusable as unusable:
        # the service account is the pod's, and not on the node
        yield Finding("API server", "note", f"it cannot be asked from here: {unusable}")
        return
    except ApiError as error:
        yield Finding("API server", "broken", str(error))
        return
    yield Finding("API server", "good", f"answers, and knows the node {node.node}")
    yield written
    try:
        doubt = runtime.require(reported, node.cdi, root=node.root)
    except Unusable as unusable:
        yield Finding("runtime", "broken", str(unusable))
    else:
        yield Finding("runtime", "note" if doubt else "good", doubt or f"{reported} applies CDI specs")


async def _reported(node: Told) -> tuple[str, Finding]:
    from gaia_plugin.agent.pods.server import NodeServer
    from gaia_plugin.kube.client import Api

    api = await Api.connect(node.kubeconfig)
    try:
        facts = await NodeServer(api, node.node, node.domain).facts()
        return facts.runtime, await _object(api, node)
    finally:
        await api.close()


async def _object(api: Api, node: Told) -> Finding:
    from gaia_plugin.kube import gpunode, nodes
    from gaia_plugin.kube.errors import ApiError

    try:
        found = await nodes.read(api, node.node, node.domain)
        if found is None:
            await api.get(gpunode.path(domain=node.domain), {"limit": 1})
    except ApiError as error:
        return Finding("GPUNode", "broken", str(nodes.NotInstalled(node.domain) if error.missing else error))
    return _written(node.node, None if found is None else found.status, datetime.now(UTC))


def _written(name: str, status: Status | None, now: datetime) -> Finding:
    from gaia_plugin.commands.nodes import SILENT_SECONDS, age_of

    if status is None:
        return Finding("GPUNode", "note", f"there is none for {name} yet: its agent has not written it.")
    age = age_of(status.heartbeat, now)
    if age is None or age > SILENT_SECONDS:
        since = "never" if age is None else f"{age:.0f} s ago"
        return Finding("GPUNode", "broken", f"{name} was last written {since}; the agent's log says why.")
    if not status.ready:
        return Finding("GPUNode", "note", f"{name} says that nothing may be placed here.")
    return Finding("GPUNode", "good", f"{name} was written {age:.0f} s ago")
