"""SIGKILL between two steps of a grow or a start, in the process that makes them."""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

PODS = "gaia_plugin.agent.pods"


def _always(*_: Any) -> bool:
    return True


def _waiting(_writer: object, _node: object, waiting: object) -> bool:
    return bool(waiting)


def _grows(_api: object, _node: object, status: Any, _domain: str) -> bool:
    """Tell whether a status says of a slot that more is booked than is in force."""
    return any(part.held != part.granted for slot in status.slots for part in slot.slices)


POINTS: Mapping[str, tuple[str, str, Callable[..., bool]]] = {
    "reserve": ("gaia_plugin.ledger.ledger", "Ledger.reserve", _always),
    "hold": ("gaia_plugin.ledger.ledger", "Ledger.hold", _always),
    "plan": (f"{PODS}.gpunode", "NodeWriter._plan", _waiting),
    "put": (f"{PODS}.gpunode", "put_status", _grows),
    "commit": ("gaia_plugin.ledger.ledger", "Ledger.commit", _always),
    "store": ("gaia_plugin.agent.core", "Core._store", _always),
    "secure": (f"{PODS}.core", "PodCore.secure", _always),
}
"""Where the code makes each step, and which calls of it are meant."""


def arm(where: str) -> None:
    """Kill this process at a point, such as ``before:put`` or ``after:commit``."""
    when, _, point = where.partition(":")
    module, path, meant = POINTS[point]
    owner: Any = import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    setattr(owner, name, _deadly(getattr(owner, name), when, meant))


def _deadly(step: Callable[..., Any], when: str, meant: Callable[..., bool]) -> Callable[..., Any]:
    @functools.wraps(step)
    def plain(*args: Any, **kwargs: Any) -> Any:
        deadly = meant(*args)
        _die(deadly and when == "before")
        result = step(*args, **kwargs)
        _die(deadly)
        return result

    @functools.wraps(step)
    async def waiting(*args: Any, **kwargs: Any) -> Any:
        deadly = meant(*args)
        _die(deadly and when == "before")
        result = await step(*args, **kwargs)
        _die(deadly)
        return result

    return waiting if inspect.iscoroutinefunction(step) else plain


def _die(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
