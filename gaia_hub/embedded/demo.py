"""`gaia demo`: JupyterHub with slices of a GPU on this machine, by one command.

This process is the root of all that follows: it starts the agent and the hub, waits, and ends
everything again. It is a subreaper, so whatever loses its parent on the way comes back to it; and
every child ends by itself if this process is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from gaia_hub.embedded.machine import Machine, choose_machine
from gaia_hub.embedded.settings import HubSettings
from gaia_hub.embedded.supervisor import Asked, Supervisor
from gaia_plugin import paths
from gaia_plugin.api.client import NodeClient
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.units import GIB, format_memory, parse_memory

_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_SHORTEST_PASSWORD: Final = 8
BOUNDARY: Final = (
    "Single-machine mode shares a card fairly among people who trust each other. It is no security\n"
    "boundary: every server runs under your account."
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `gaia demo` with the arguments after the word demo; return the exit code.

    Raises:
        Unusable, Refusal: in a sentence, for the command line to print.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="gaia demo", standalone_mode=False)
    except typer.Exit as ended:
        return ended.exit_code
    except Exception as error:
        return _usage(error)
    return 0


def _usage(error: Exception) -> int:
    """Show a mistake in the command line as click does; raise anything else again."""
    show, code = getattr(error, "show", None), getattr(error, "exit_code", 1)
    if not callable(show):
        raise error
    show()
    return int(code)


@app.command()
def demo(
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Port on 127.0.0.1.")] = 8000,
    sim: Annotated[
        bool, typer.Option("--sim", help="Simulated cards, also where there are real ones.")
    ] = False,
    driver: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The NVIDIA driver to use: a directory with libcuda.so.1 and libnvidia-ml.so.1.",
        ),
    ] = None,
    cards: Annotated[
        int | None, typer.Option(min=1, max=16, metavar="N", help="How many simulated cards. Default: 2.")
    ] = None,
    card_memory: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Memory of each simulated card. Default: 24GiB.")
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="Password for everybody, 8 characters or more. Default: a new one."
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Start JupyterHub with sliced GPUs on 127.0.0.1. Control-C ends it and everything it started.

    The machine's own cards are shared if it has any; otherwise cards are simulated.
    """
    if password is not None and len(password) < _SHORTEST_PASSWORD:
        raise Unusable(f"The password is too short: it needs {_SHORTEST_PASSWORD} characters or more.")
    memory = None if card_memory is None else parse_memory(card_memory)
    if memory is not None and memory < GIB:
        raise Unusable("A simulated card needs at least 1GiB of memory.")
    check_port(port)
    directory = _private_directory(paths.state_root() / "hub")
    lock = _only_one(directory)
    try:
        machine = choose_machine(driver, simulate=sim, cards=cards, memory=memory)
        settings = HubSettings(
            directory=str(directory),
            port=port,
            hub_port=_free_port(),
            password=password or _new_password(),
            agent_socket=str(machine.socket),
        )
        code = _run(machine, settings, opened=not no_open)
    finally:
        os.close(lock)
    raise typer.Exit(code)


def _run(machine: Machine, settings: HubSettings, *, opened: bool) -> int:
    supervisor = Supervisor(machine, settings)
    address = f"http://127.0.0.1:{settings.port}"
    try:
        _say("Gaia demo: JupyterHub with slices of a GPU, on this machine only")
        _step(
            1, "Cards    ", "simulated" if machine.simulated else str(machine.driver or "this machine's own")
        )
        supervisor.start_hub()  # loads while the agent starts
        _step(2, "Agent    ", "starting …")
        supervisor.start_agent()
        supervisor.wait_for_agent()
        _step(2, "Agent    ", _cards_sentence(machine))
        _step(3, "JupyterHub", "starting …")
        supervisor.wait_for_page(f"{address}/hub/login")
        _step(3, "JupyterHub", "ready")
        _step(4, "Open     ", address)
        _say(f"\n  Address   {address}\n  User      any name, such as ann")
        _say(f"  Password  {settings.password}\n")
        _say(f"{BOUNDARY}\nControl-C ends it. Logs: {settings.directory}/hub.log and agent.log\n")
        if opened and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            webbrowser.open(address)
        supervisor.watch()
    except Asked:
        pass
    finally:
        _say("Ending servers, hub and agent …")
        left = supervisor.end()
        _say("Ended; nothing is left." if not left else f"These processes do not end: {left}")
    if supervisor.failure:
        raise Unusable(supervisor.failure)
    return 0 if not left else 1


def _cards_sentence(machine: Machine) -> str:
    try:
        found = NodeClient(machine.socket).cards()
    except Refusal as refusal:
        return refusal.sentence
    if not found:
        return "ready, but it found no card; only servers without a GPU can start"
    total = format_memory(sum(card.total.memory for card in found))
    cards = "1 card" if len(found) == 1 else f"{len(found)} cards"
    return f"ready: {cards} ({found[0].name}), {total} to share"


def check_port(port: int) -> None:
    """Make sure that the port can be had.

    Raises:
        Unusable: it is in use or not allowed; the sentence names one that can be had.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return
        except OSError as error:
            why = {
                errno.EADDRINUSE: "is in use by another program",
                errno.EACCES: "needs root's rights",
            }.get(error.errno or 0, f"cannot be had ({error.strerror})")
    raise Unusable(f"Port {port} on 127.0.0.1 {why}. Choose another: gaia demo --port {_free_port(port + 1)}")


def _free_port(first: int = 0) -> int:
    for port in (*(range(first, min(first + 100, 65536)) if first > 1024 else ()), 0):
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise Unusable("There is no free port on 127.0.0.1.")


def _private_directory(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise Unusable(
            f"The directory {path} cannot be used: {error.strerror}. "
            "Name another state directory with GAIA_STATE."
        ) from error
    for name in ("jupyterhub.sqlite", "hub.log", "agent.log"):
        os.close(os.open(path / name, os.O_RDWR | os.O_CREAT, 0o600))
        (path / name).chmod(0o600)
    return path


def _only_one(directory: Path) -> int:
    """Lock the hub's directory and return the descriptor that holds the lock until this process ends."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        _already_running(directory, pid)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _already_running(directory: Path, pid: str) -> NoReturn:
    where = ""
    with suppress(OSError, ValueError, TypeError):
        where = f" at http://127.0.0.1:{HubSettings.read(directory / 'settings.json').port}"
    raise Unusable(
        f"A demo is running already{where} (process {pid or 'unknown'}). Use that one, end it with "
        "Control-C, or set GAIA_STATE to another directory for a second."
    )


def _new_password() -> str:
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(4)) for _ in range(4))


def _step(number: int, what: str, state: str) -> None:
    _say(f"[{number}/4] {what:<10} {state}")


def _say(text: str) -> None:
    # The terminal may be gone; that must not keep anything from being ended.
    with suppress(OSError, ValueError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
