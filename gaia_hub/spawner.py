"""What Gaia's spawners have in common: profiles, the spawn page, strict options, progress.

A spawner for some kind of node mixes this in before JupyterHub's class and says what is free
(`availability`); starting and stopping stay its own affair. No state of one spawn is kept for the
next: the choice is read from the user options each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from traitlets import Dict, List, TraitError, default, validate
from traitlets.config import LoggingConfigurable

from gaia_hub import profiles as _profiles
from gaia_hub.form.render import render_page
from gaia_hub.form.view import Availability, build_page
from gaia_hub.profiles import Choice, Menu
from gaia_hub.refusals import refused
from gaia_plugin.errors import Code, Refusal


class GaiaSpawnerMixin(LoggingConfigurable):
    """Profiles, spawn page and option checks; mix in before a JupyterHub `Spawner`."""

    profiles = List(
        Dict(),
        help="""
        The options of the spawn page, in order; each a dict.

        `key` (lower case letters, digits, hyphens) and `name` are required. `memory` is text with
        a unit, `cores` percent of one card; `cores` of 100 alone means a whole card, and
        `"gpu": False` a server without a slice. `max_memory` and `max_cores` say how far the
        owner may resize (default: the whole card). `description`, `compute` ("hard" or "elastic"),
        `models` (a list of card names) and `expandable_segments` (PyTorch gives memory back on a
        shrink) may follow. A mistake is refused with the key it belongs to.

        For example::

            c.GaiaLocalSpawner.profiles = [
                {"key": "course", "name": "Course", "memory": "2GiB", "cores": 10,
                 "max_memory": "4GiB", "max_cores": 20},
                {"key": "none", "name": "No GPU", "gpu": False},
            ]
        """,
    ).tag(config=True)

    own_numbers = Dict(
        help="""
        What "own numbers" on the spawn page allows.

        `enabled` (default True); `memory` and `cores`, with which the fields start; `limit_memory`
        and `limit_cores`, the most that may be asked for (default: a whole card); `max_memory`
        and `max_cores`, how far the owner may resize afterwards (default: the whole card);
        `compute`, the mode that is chosen at first, "hard" (default) or "elastic".

        For example::

            c.GaiaLocalSpawner.own_numbers = {"limit_memory": "12GiB", "limit_cores": 50}
        """,
    ).tag(config=True)

    @default("profiles")
    def _default_profiles(self) -> list[dict[str, object]]:
        return [dict(profile) for profile in _profiles.DEFAULT_PROFILES]

    @validate("profiles")
    def _check_profiles(self, proposal: Any) -> Any:
        _read_or_trait_error(proposal.value, {})
        return proposal.value

    @validate("own_numbers")
    def _check_own_numbers(self, proposal: Any) -> Any:
        _read_or_trait_error(_profiles.DEFAULT_PROFILES, proposal.value)
        return proposal.value

    @property
    def menu(self) -> Menu:
        """The validated menu of this spawner."""
        return _profiles.read_menu(self.profiles, self.own_numbers)

    async def availability(self, choices: Mapping[str, Choice]) -> Availability:
        """Return the cards and, for each key, whether its choice could start now. Never raises."""
        raise NotImplementedError

    # the spawn page

    _entered: Mapping[str, Sequence[object]] | None = None

    @default("options_form")
    def _default_options_form(self) -> Any:
        return _options_form

    async def spawn_page(self) -> str:
        """Return the HTML of the options for what is free at this moment."""
        menu, entered = self.menu, self._entered
        self._entered = None
        choices = {
            key: menu.smallest_own() if key == _profiles.OWN else menu.choice(key) for key in menu.keys
        }
        wanted = {key: choice for key, choice in choices.items() if choice.gpu}
        return render_page(build_page(menu, await self.availability(wanted), entered))

    # the three ways in: form, query, REST

    @default("options_from_form")
    def _default_options_from_form(self) -> Any:
        return self._read_form

    async def _read_form(self, form: Mapping[str, Sequence[object]]) -> dict[str, str | int]:
        self._entered = form
        return await self._accept(lambda: _profiles.options_from_form(form))

    async def options_from_query(self, query: Mapping[str, Sequence[object]]) -> dict[str, str | int]:
        """Return the user options of ``/hub/spawn?...``; refuse here, where it costs nothing."""
        return await self._accept(lambda: _profiles.options_from_query(query))

    async def _accept(self, read: Any) -> dict[str, str | int]:
        """Validate, and refuse what cannot start now before JupyterHub counts it as a spawn."""
        try:
            choice = self.menu.choose(read())
            if choice.gpu:
                await self._refuse_if_full(choice)
        except Refusal as refusal:
            raise refused(refusal) from refusal
        return choice.options()

    async def _refuse_if_full(self, choice: Choice) -> None:
        found = await self.availability({choice.profile: choice})
        if found.problem:
            raise Refusal(Code.UNAVAILABLE, found.problem)
        fit = found.fits.get(choice.profile)
        if fit is not None and not fit.fits:
            raise Refusal(Code.CARD_FULL, fit.reason)

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return _apply_user_options

    def check_user_options(self, options: object) -> Choice:
        """Return the choice of these options, however they came in.

        What is refused is also forgotten: JupyterHub has stored it already, and the next start
        without options would meet it again.

        Raises:
            tornado.web.HTTPError: as made by `gaia_hub.refusals.refused`.
        """
        try:
            return self.menu.choose({} if options is None else options)
        except Refusal as refusal:
            self._forget_options()
            raise refused(refusal) from refusal

    def _forget_options(self) -> None:
        stored = getattr(self, "orm_spawner", None)
        if stored is not None:
            stored.user_options = {}  # committed by JupyterHub's own clean-up after the refusal
        self.user_options: dict[str, object] = {}

    # progress

    _events: list[dict[str, object]] | None = None
    _news: asyncio.Event | None = None

    def begin_progress(self) -> None:
        """Forget the events of an earlier start."""
        self._events, self._news, self._entered = [], asyncio.Event(), None

    def report(self, percent: int, message: str) -> None:
        """Show a step of the start on the progress page; `message` is text, not HTML."""
        if self._events is None or self._news is None:
            self.begin_progress()
        assert self._events is not None and self._news is not None  # noqa: PT018
        self._events.append({"progress": percent, "message": message})
        self._news.set()
        self._news = asyncio.Event()

    async def progress(self) -> AsyncIterator[dict[str, object]]:
        """Yield the steps of the start so far and then as they come; JupyterHub ends it."""
        told = 0
        while True:
            if self._events is None or self._news is None:
                self.begin_progress()
            assert self._events is not None and self._news is not None  # noqa: PT018
            news = self._news
            for event in self._events[told:]:
                told += 1
                yield event
            if news is self._news:
                await news.wait()


def _read_or_trait_error(profiles: Any, own: Any) -> None:
    try:
        _profiles.read_menu(profiles, own)
    except ValueError as error:
        raise TraitError(str(error)) from error


async def _options_form(spawner: GaiaSpawnerMixin) -> str:
    return await spawner.spawn_page()


def _apply_user_options(spawner: GaiaSpawnerMixin, options: object) -> None:
    spawner.check_user_options(options)
