"""Refusals as problem details (RFC 9457), the form in which the browser gets them."""

from __future__ import annotations

from http import HTTPStatus

from gaia_plugin.api.client import ApiRefusal
from gaia_plugin.api.models import Amounts, Problem
from gaia_plugin.errors import HTTP_STATUS, Code, Refusal

AGENT_AWAY = (
    "Gaia's agent does not answer at the moment. What runs goes on under its present limits; "
    "changes are possible again when the agent is back."
)


def problem(refusal: Refusal) -> Problem:
    """Return the problem that `refusal` came as, or the one that says what it says.

    An agent that does not answer is told in words for the person at the notebook, without the path
    of a socket that they can do nothing about.
    """
    if isinstance(refusal, ApiRefusal):
        return refusal.problem
    status = HTTP_STATUS[refusal.code]
    best = None
    if refusal.best_memory is not None and refusal.best_cores is not None:
        best = Amounts(memory=refusal.best_memory, cores=refusal.best_cores)
    return Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=AGENT_AWAY if refusal.code is Code.UNAVAILABLE else refusal.sentence,
        code=str(refusal.code),
        best_offer=best,
    )
