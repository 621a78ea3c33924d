"""GaiaLocalSpawner: single-user servers as processes of this machine, each in its own slice.

All servers run under the hub's uid, so this shares a card fairly among people who trust each other
and is no security boundary. Works as root and as an ordinary user, with JupyterHub 5.3 to 6.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Float, Unicode, default

from gaia_hub.embedded import processes
from gaia_hub.form.view import AWAY, Availability
from gaia_hub.homes import home_name, prepare_home
from gaia_hub.profiles import Choice
from gaia_hub.refusals import refused
from gaia_hub.spawner import GaiaSpawnerMixin
from gaia_plugin.api.client import NodeClient
from gaia_plugin.api.models import MadeSlot
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.paths import operator_socket, state_directory, state_root
from gaia_plugin.units import format_cores, format_memory

MARK: Final = "GAIA_SERVER"
"""Environment variable by which everything that a server started is found again."""

NO_GPU: Final = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
"""Environment of a server without a slice: no card is visible, whoever asks."""

_SLOT_VARIABLES: Final = (
    "GAIA_SLOT_SOCKET",
    "CUDA_VISIBLE_DEVICES",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "TF_FORCE_GPU_ALLOW_GROWTH",
)
_EXPANDABLE: Final = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
}

_T = TypeVar("_T")


def server_environment(
    environment: Mapping[str, str], slot: Mapping[str, str] | None, state: Path, *, expandable: bool = False
) -> dict[str, str]:
    """Return a server's environment with exactly the slice of `slot`, or with none.

    Whatever the hub itself inherited of a slice is taken out first: variables of a slot, and
    library directories under the state directory. `slot` is what the agent gave with the slot.
    """
    result = {key: value for key, value in environment.items() if key not in _SLOT_VARIABLES}
    inherited = result.pop("LD_LIBRARY_PATH", "").split(":")
    libraries = [path for path in inherited if path and not _below(path, state)]
    if slot is None:
        result |= NO_GPU
    else:
        own = [path for path in slot.get("LD_LIBRARY_PATH", "").split(":") if path]
        libraries = own + [path for path in libraries if path not in own]
        result |= {key: value for key, value in slot.items() if key != "LD_LIBRARY_PATH"}
        if expandable:
            result |= _EXPANDABLE
    if libraries:
        result["LD_LIBRARY_PATH"] = ":".join(libraries)
    return result


def _below(path: str, state: Path) -> bool:
    return Path(os.path.normpath(path)).is_relative_to(state)


class GaiaLocalSpawner(GaiaSpawnerMixin, LocalProcessSpawner):  # type: ignore[misc]
    """Start `jupyterhub-singleuser` on this machine in a slice of a GPU."""

    agent_socket = Unicode(
        help="""
        The operator socket of Gaia's agent, such as `/home/ann/.local/state/gaia/system/operator.sock`.

        Default: the one of this user's agent for the system's driver.
        """,
    ).tag(config=True)

    home_root = Unicode(
        help="""
        Directory in which each user gets a home. Default: `hub/homes` in Gaia's state directory.
        """,
    ).tag(config=True)

    agent_timeout = Float(
        25.0, help="Seconds to wait for an answer of the agent before it counts as away."
    ).tag(config=True)

    pid: int
    _slot: str = ""
    _mark: str = ""
    _sentence: str = ""
    _started: int = 0
    _slot_environment: dict[str, str] | None = None
    _expandable: bool = False
    _watched: int = -1

    @default("agent_socket")
    def _default_agent_socket(self) -> str:
        return str(operator_socket(state_directory(None)))

    @default("home_root")
    def _default_home_root(self) -> str:
        return str(state_root() / "hub" / "homes")

    @default("cmd")
    def _default_cmd(self) -> list[str]:
        return [sys.executable, "-m", "jupyterhub.singleuser"]

    @default("default_url")
    def _default_default_url(self) -> str:
        return "/lab"

    @property
    def home(self) -> Path:
        """The home directory of this user."""
        return Path(self.home_root) / home_name(self.user.name)

    # talking to the agent

    async def ask(self, call: Callable[[NodeClient], _T]) -> _T:
        """Run one call of the agent's client in a thread.

        Raises:
            Refusal: the agent's, or ``unavailable`` when it is away or takes too long.
        """
        client = NodeClient(self.agent_socket)
        try:
            return await asyncio.wait_for(asyncio.to_thread(call, client), self.agent_timeout)
        except TimeoutError as error:
            raise Refusal(Code.UNAVAILABLE, AWAY) from error

    async def availability(self, choices: Mapping[str, Choice]) -> Availability:
        """Return what the agent says is free; with the agent away, that in words."""
        wishes = [choice.new_slot(self.user.name, self.name) for choice in choices.values()]
        try:
            cards = await self.ask(lambda client: client.cards())
            fits = await self.ask(lambda client: client.fit(wishes)) if cards and wishes else ()
        except Refusal as refusal:
            self.log.warning("Gaia's agent does not answer: %s", refusal.sentence)
            return Availability(problem=AWAY)
        return Availability(tuple(cards), dict(zip(choices, fits, strict=False)))

    # start

    async def start(self) -> Any:
        """Make the slot, start the server in it and tell the agent to whom it belongs."""
        self.begin_progress()
        choice = self.check_user_options(self.user_options)
        self._slot, self._slot_environment, self._expandable = "", None, choice.expandable_segments
        self._mark = secrets.token_hex(16)
        try:
            await asyncio.to_thread(prepare_home, self.home)
            await self._take_slice(choice)
            self.report(40, "Starting JupyterLab …")
            address = await super().start()
            self._started = processes.start_time(self.pid) or 0
            if self._slot:
                await self.ask(lambda client: client.own(self._slot, self.pid))
            self._watch()
        except Refusal as refusal:
            await self._end()
            raise refused(refusal) from refusal
        except BaseException:
            await self._end()
            raise
        self.report(60, f"JupyterLab is loading … {self._sentence}".rstrip())
        return address

    async def _take_slice(self, choice: Choice) -> None:
        if not choice.gpu:
            self._sentence = "This server has no GPU."
            self.report(20, self._sentence)
            return
        self.report(10, f"Asking for {choice.amount_text()} …")
        made = await self._make(choice)
        self._slot, self._slot_environment = made.slot.slot, dict(made.environment)
        self._sentence = _slice_sentence(made)
        self.report(25, self._sentence)

    async def _make(self, choice: Choice) -> MadeSlot:
        """Make the slot; one of the same name that is left over from before is released first."""
        wish = choice.new_slot(self.user.name, self.name)
        try:
            return await self.ask(lambda client: client.make(wish))
        except Refusal as refusal:
            if refusal.code != Code.SLOT_EXISTS:
                raise
        self.report(15, "Waiting for the slice of your last server to be returned …")
        for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
            await self._release_leftover()
            await asyncio.sleep(pause)
            try:
                return await self.ask(lambda client: client.make(wish))
            except Refusal as refusal:
                if refusal.code != Code.SLOT_EXISTS:
                    raise
        raise Refusal(
            Code.SLOT_EXISTS,
            "The slice of your last server is not free yet, because a program in it still runs. "
            "Try again in a minute, or choose a server without a GPU.",
        )

    async def _release_leftover(self) -> None:
        """Release this server's old slot: the hub knows that the server itself is not running."""
        for slot in await self.ask(lambda client: client.slots()):
            if slot.owner == self.user.name and slot.name == self.name:
                await self._release(slot.slot)

    def get_env(self) -> dict[str, str]:
        """Return the environment of the server, with its slice or without any."""
        environment = server_environment(
            super().get_env(),
            self._slot_environment,
            Path(self.agent_socket).parent,
            expandable=self._expandable,
        )
        # Each home is a user's own, so `gaia` in a terminal of the server must be told where Gaia is.
        return environment | {MARK: self._mark, "GAIA_STATE": str(state_root())}

    def get_args(self) -> list[str]:
        """Return the server's arguments: quiet, and working under root too."""
        args = [
            *super().get_args(),
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        if os.geteuid() == 0:
            args.append("--allow-root")
        if os.environ.get("GAIA_TEST") == "1":
            args += [
                "--LabApp.expose_app_in_browser=True",
                "--JupyterNotebookApp.expose_app_in_browser=True",
            ]
        return args

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        """Set user and home; no account of that name need exist on the machine."""
        return env | {"USER": self.user.name, "HOME": str(self.home), "SHELL": "/bin/bash"}

    def make_preexec_fn(self, name: str) -> Callable[[], None]:
        """Let the server end when the hub does, and begin in its home."""
        dies, home = processes.die_with_parent(), str(self.home)

        def before_exec() -> None:
            dies()
            os.chdir(home)

        return before_exec

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        """Leave certificates where they are: hub and servers run under one uid."""
        return paths

    # the end, however it comes

    def _watch(self) -> None:
        """Notice the end of the server at once instead of at the next poll."""
        self._unwatch()
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return
        self._watched = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._server_ended, descriptor)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = -1

    def _server_ended(self, descriptor: int) -> None:
        self._unwatch()
        if not self._stop_pending:
            self._ending = asyncio.ensure_future(self.poll_and_notify())

    async def poll(self) -> int | None:
        """Return None while the server runs; after its end, end what it left and return the slice."""
        if self.proc is None and self.pid and self._started != (processes.start_time(self.pid) or 0):
            self.pid = 0  # after a restart of the hub: the number belongs to another process now
        status: int | None = await super().poll()
        if status is not None:
            await self._end()
        return status

    async def stop(self, now: bool = False) -> None:
        """Stop the server and all it started, and return the slice."""
        self._unwatch()
        await super().stop(now=now)
        await self._end()

    async def _end(self) -> None:
        """End every process of this server and release its slot. Harmless when repeated."""
        self._unwatch()
        mark, slot = self._mark, self._slot
        self._mark, self._slot, self._slot_environment = "", "", None
        if mark:
            find = partial(processes.marked, MARK, mark)
            left = await asyncio.to_thread(processes.end_all, find, 2.0)
            if left:
                self.log.warning("Processes of %s do not end: %s", self._log_name, left)
        if slot:
            await self._release(slot)

    async def _release(self, slot: str) -> None:
        try:
            await self.ask(lambda client: client.release(slot))
        except Refusal as refusal:
            if refusal.code != Code.NO_SUCH_SLOT:  # else the agent saw the end before us
                self.log.warning("The slot %s is left to the agent to release: %s", slot, refusal.sentence)

    # what survives a restart of the hub

    def get_state(self) -> dict[str, Any]:
        """Return the pid, and by what the server's slice and processes are known."""
        state: dict[str, Any] = super().get_state()
        if self.pid:
            state |= {"gaia_slot": self._slot, "gaia_mark": self._mark, "gaia_started": self._started}
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_state` returned."""
        super().load_state(state)
        self._slot = str(state.get("gaia_slot", ""))
        self._mark = str(state.get("gaia_mark", ""))
        self._started = int(state.get("gaia_started", 0))


def _slice_sentence(made: MadeSlot) -> str:
    slot = made.slot
    where = " and ".join(f"card {card.index} ({card.name})" for card in slot.cards)
    return (
        f"Your slice: {format_memory(slot.granted.memory)} and {format_cores(slot.granted.cores)} on {where}."
    )
