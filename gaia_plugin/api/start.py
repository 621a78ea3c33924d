"""From the outside: which agents run, and an agent where none does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaia_plugin import paths
from gaia_plugin.api import whose
from gaia_plugin.api.client import NodeClient
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.extras import require_node

IDLE_EXIT: Final = 30.0
START_TIMEOUT: Final = 30.0
LOG: Final = "agent.log"
_LARGEST_LOG: Final = 4 << 20

# the shell ends at once, so the agent is nobody's child: no zombie, no SIGCHLD in a program that
# `gaia run` becomes, and no terminal that could end it
_DETACH: Final = 'log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'


def client_of(state: Path, *, timeout: float = 20.0) -> NodeClient:
    """Return the client of the agent of this state directory, running or not."""
    return NodeClient(paths.operator_socket(state), timeout=timeout)


def answers(state: Path) -> bool:
    """Tell whether an agent answers there."""
    try:
        client_of(state, timeout=5.0).health()
    except Refusal:
        return False
    return True


def running(root: Path | None = None) -> tuple[Path, ...]:
    """Return the state directories whose agents answer."""
    return tuple(state for state in paths.state_directories(root) if answers(state))


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without anything of a slot, so that the agent sees the real driver."""
    cleaned = {key: value for key, value in environ.items() if key != "GAIA_SLOT_SOCKET"}
    for name in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
        cleaned.pop(name, None)
    entries = cleaned.pop("LD_LIBRARY_PATH", "").split(":")
    kept = [entry for entry in entries if entry and not (Path(entry).parent / "limits").exists()]
    if kept:
        cleaned["LD_LIBRARY_PATH"] = ":".join(kept)
    return cleaned


def ensure_agent(
    state: Path | None = None, driver: Path | None = None, *, idle_exit: float | None = IDLE_EXIT
) -> NodeClient:
    """Return a client of the agent of `state`, which is started in the background if none answers.

    An agent started so ends by itself after `idle_exit` seconds without slots and clients; call
    this again before each use (it costs one request), or keep a connection.

    Args:
        state: the state directory; None: the one that belongs to `driver`.
        driver: the directory of libcuda.so.1 and libnvidia-ml.so.1; None: the system's.
        idle_exit: seconds; None: never.

    Raises:
        Unusable: no agent could be started, the sentence has its own words; or this machine is a node of
            a cluster.
        ModuleNotFoundError: the node part is not installed.
    """
    whose.refuse_on_node()
    if driver is not None:
        driver = paths.check_driver(driver)
    state = state or paths.state_directory(driver)
    client = client_of(state)
    if answers(state):
        _check_same_driver(client, state, driver)
        return client
    require_node()
    if driver is None:
        paths.system_driver()
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        pid, log_from = _spawn(state, driver, idle_exit)
    except OSError as error:
        raise Unusable(
            f"No agent can be started in {state}: {error.strerror}. Name another state directory with "
            "GAIA_STATE."
        ) from error
    deadline = time.monotonic() + START_TIMEOUT
    pause = 0.01
    while time.monotonic() < deadline:
        if answers(state):
            return client
        # one that found the directory taken has ended because another one is starting; that one
        # writes into the same log, so the words need not be the last
        if not _alive(pid) and not any("already serves" in line for line in _said(state, log_from)):
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    if answers(state):
        return client
    last = (_said(state, log_from) or ["It said nothing."])[-1].removeprefix("gaia: ")
    raise Unusable(f"Gaia's agent could not be started. {last[:500]} Its log is {state / LOG}.")


def _check_same_driver(client: NodeClient, state: Path, driver: Path | None) -> None:
    """Refuse an agent that serves another driver than the one named."""
    serves = client.health().driver
    if driver is not None and os.path.realpath(driver) != os.path.realpath(serves):
        raise Unusable(
            f"The agent in {state} serves the driver in {serves}, not {driver}. Leave --state out: each "
            "driver has a state directory of its own."
        )


def _spawn(state: Path, driver: Path | None, idle_exit: float | None) -> tuple[int, int]:
    log = state / LOG
    log_from = log.stat().st_size if log.exists() else 0
    if log_from > _LARGEST_LOG:
        log.replace(log.with_suffix(".log.1"))
        log_from = 0
    command = [sys.executable, "-m", "gaia_plugin.agent", "--state", str(state)]
    if driver is not None:
        command += ["--driver", str(driver)]
    if idle_exit is not None:
        command += ["--idle-exit", str(idle_exit)]
    done = subprocess.run(
        ["/bin/sh", "-c", _DETACH, "sh", str(log), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=agent_environment(os.environ),
        cwd="/",
        start_new_session=True,
        check=True,
    )
    return int(done.stdout), log_from


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")


def _said(state: Path, start: int) -> list[str]:
    """Return the lines of the log from an offset on."""
    try:
        with open(state / LOG, "rb") as log:
            log.seek(start)
            lines = log.read(1 << 20).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()]
