"""`gaia doctor`."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from errno import EADDRINUSE
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from gaia_plugin import paths
from gaia_plugin.commands.common import (
    BROKEN,
    DriverOption,
    DriverStateOption,
    JsonOption,
    SimOption,
    driver_of,
    print_json,
)
from gaia_plugin.errors import Refusal, Unusable

if TYPE_CHECKING:
    from gaia_plugin.commands.doctor_node import Told

Verdict = Literal["good", "note", "broken"]

_SHM: Final = "/dev/shm"  # noqa: S108

NO_BOUNDARY: Final = (
    "Single-machine mode shares a card fairly among people who trust each other. It is no security "
    "boundary: all programs run as the same user, and one that wants to can go around it."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what, how it is, and a sentence."""

    what: str
    verdict: Verdict
    sentence: str


def doctor(
    driver: DriverOption = None,
    sim: SimOption = False,
    state: DriverStateOption = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="PORT", help="The port gaia demo would use.")
    ] = 8000,
    json: JsonOption = False,
) -> None:
    """Say what Gaia lacks on this machine, if anything.

    On a node of a cluster it also looks at the kubelet, at CDI and at what the agent's pod may; call it in
    that pod. Every finding comes with what to do about it. Exit code 1 if something is broken.
    """
    node = _node(state)
    found = _findings(driver, sim, state, port) if node is None else _on_node(node, driver, sim)
    findings = list(found)
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            sys.stdout.write(f"{finding.verdict + ':':8}{finding.what}: {finding.sentence}\n")
        if node is None:
            sys.stdout.write(f"\n{NO_BOUNDARY}\n")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(BROKEN)


def _node(state: Path | None) -> Told | None:
    from gaia_plugin.commands import doctor_node

    return doctor_node.told(None if state is None else Path(os.path.abspath(state)))


def _on_node(node: Told, driver: Path | None, sim: bool) -> Iterator[Finding]:
    from gaia_plugin.agent.pods.driver import locate
    from gaia_plugin.commands import doctor_node

    yield _shared_memory()
    yield _attempt("libraries", lambda: f"the shadow library is in {paths.shadow('container')}")
    try:
        chosen = locate(driver_of(driver, sim) or node.driver, node.root)
        yield Finding("driver", "good", f"found in {chosen}")
        yield from _cards(chosen)
    except Unusable as unusable:
        yield Finding("driver", "broken", str(unusable))
    yield _writable(node.state)
    yield _agent(node.state, "none answers there; its pod's log says why.", "broken")
    yield from doctor_node.findings(node)


def _findings(driver: Path | None, sim: bool, state: Path | None, port: int) -> Iterator[Finding]:
    yield _compiler()
    yield _shared_memory()
    yield _attempt("libraries", lambda: f"the shadow library is in {paths.shadow()}")
    chosen: Path | None = None
    try:
        named = driver_of(driver, sim)
        chosen = named or paths.system_driver()
        yield Finding("driver", "good", f"found in {chosen}")
    except Unusable as unusable:
        # a machine without a card is a good machine for the simulated one
        named = driver
        asked = driver is not None or sim
        yield Finding("driver", "broken" if asked else "note", str(unusable))
    if chosen is not None:
        yield from _cards(chosen)
    directory = paths.state_directory(named) if state is None else Path(os.path.abspath(state))
    yield _writable(directory)
    yield _agent(directory)
    yield _port(port)


def _attempt(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, "good", look())
    except Unusable as unusable:
        return Finding(what, "broken", str(unusable))


def _compiler() -> Finding:
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found is not None:
        return Finding("compiler", "good", found)
    return Finding(
        "compiler", "note", "there is none; it is needed only to build Gaia (apt install build-essential)."
    )


def _shared_memory() -> Finding:
    if os.path.isdir(_SHM) and os.access(_SHM, os.W_OK):
        return Finding(_SHM, "good", "is there and can be written")
    return Finding(
        _SHM,
        "broken",
        "is not there or cannot be written; the simulated GPU and many programs need it. In a container, "
        "mount a tmpfs there.",
    )


def _cards(driver: Path) -> Iterator[Finding]:
    from gaia_plugin.commands.common import memory

    try:
        from gaia_plugin.gpu.nvml import Nvml
        from gaia_plugin.sim import leave

        with ExitStack() as stack:
            stack.callback(leave, driver)
            nvml = stack.enter_context(Nvml(driver))
            cards = nvml.cards()
            yield Finding("NVML", "good", f"answers, {_count(len(cards), 'card')}")
            for card in cards:
                usable = memory(card.memory_total - card.memory_reserved)
                yield Finding(
                    f"card {card.index}",
                    "good" if card.healthy else "broken",
                    f"{card.name}, {usable} for slices, {card.uuid} {card.trouble}".rstrip(),
                )
    except ImportError:
        yield Finding("NVML", "broken", "the node part is missing: pip install 'gaia-vgpu[node]'.")
    except (Unusable, Refusal) as error:
        yield Finding("NVML", "broken", str(error))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _writable(directory: Path) -> Finding:
    there = directory
    while not there.exists() and there != there.parent:
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("state", "good", f"{directory} can be written")
    return Finding(
        "state", "broken", f"{directory} cannot be written; set GAIA_STATE to a directory that can."
    )


def _agent(
    directory: Path,
    otherwise: str = "none is running there; gaia run and gaia demo start one.",
    verdict: Verdict = "note",
) -> Finding:
    from gaia_plugin.api import start

    try:
        health = start.client_of(directory, timeout=5.0).health()
    except Refusal:
        return Finding("agent", verdict, otherwise)
    return Finding("agent", "good", f"process {health.pid} is running with {_count(health.slots, 'slot')}")


def _port(port: int) -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = "is in use; a hub may be running already" if error.errno == EADDRINUSE else error.strerror
            return Finding(f"port {port}", "note", f"{why}. gaia demo --port takes another one.")
    return Finding(f"port {port}", "good", "is free")
