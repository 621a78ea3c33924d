"""Turn a `Refusal` into what JupyterHub shows to people and does not count as a failure of the hub.

JupyterHub 6 has `SpawnException` for this. On 5.x an HTTP error of our own gives the same words (its
spawn page shows ``str(error)`` with status 200); there every failed spawn counts, so set
``c.Spawner.consecutive_failure_limit = 0``.
"""

from __future__ import annotations

from typing import Any

from tornado import web

from gaia_plugin.errors import HTTP_STATUS, Refusal


def _spawn_exception() -> type[Any] | None:
    import jupyterhub.spawner

    found: type[Any] | None = getattr(jupyterhub.spawner, "SpawnException", None)
    return found


_SPAWN_EXCEPTION = _spawn_exception()


class _SpawnError(web.HTTPError):
    """Stands in for `SpawnException` on JupyterHub 5.x."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(status, "%s", sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


def refused(refusal: Refusal) -> web.HTTPError:
    """Return the exception to raise for `refusal` in a handler, a hook or `start`.

    Its ``jupyterhub_message`` is the sentence; form, progress page and REST all show that. The
    sentence never becomes an HTTP reason phrase, because it may hold a user's own text.
    """
    status = HTTP_STATUS[refusal.code]
    if _SPAWN_EXCEPTION is not None:
        error: web.HTTPError = _SPAWN_EXCEPTION(
            refusal.sentence, reason=f"gaia_{refusal.code}", status_code=status
        )
    else:
        error = _SpawnError(status, refusal.sentence)
    error.jupyterhub_message = refusal.sentence  # type: ignore[attr-defined]
    return error
