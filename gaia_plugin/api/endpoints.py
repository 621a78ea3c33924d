"""The list of everything that can be asked, from which both the routes and the document are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gaia_plugin.api import models

Where = Literal["slot", "operator"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation: which socket it is on, what it takes and what it answers.

    `body` and `answer` are types that msgspec knows; `answer` None means a stream of events.
    `query` is a parameter that must be given, with what it is.
    `refusals` are the HTTP statuses that it can answer besides those that all can.
    """

    where: Where
    method: str
    path: str
    name: str
    summary: str
    answer: Any
    body: Any = None
    status: int = 200
    tagged: bool = False
    conditional: bool = False
    query: tuple[str, str] | None = None
    refusals: tuple[int, ...] = field(default=())


ENDPOINTS: Final = (
    Endpoint(
        "slot", "GET", "/v1/slot", "getSlot", "The slot as it stands.", models.Slot, tagged=True,
        refusals=(404, 429),
    ),
    Endpoint(
        "slot", "PATCH", "/v1/slot", "resizeSlot",
        "Set the totals of the slot, or the amounts on one of its cards.",
        models.Resized, body=models.Resize, tagged=True, conditional=True,
        refusals=(404, 409, 412, 422, 429),
    ),
    Endpoint(
        "slot", "GET", "/v1/slot/events", "watchSlot",
        "The slot at once and after every change, as server-sent events named `slot`; `gone` at its end.",
        None, refusals=(404, 429),
    ),
    Endpoint(
        "operator", "GET", "/v1/healthz", "getHealth", "Who answers here.", models.Health,
    ),
    Endpoint(
        "operator", "GET", "/v1/cards", "listCards", "The cards, and what is free on them.",
        tuple[models.CardView, ...],
    ),
    Endpoint("operator", "GET", "/v1/slots", "listSlots", "All slots.", tuple[models.Slot, ...]),
    Endpoint(
        "operator", "POST", "/v1/slots", "makeSlot", "Make a slot.",
        models.MadeSlot, body=models.NewSlot, status=201, tagged=True, refusals=(404, 409, 422),
    ),
    Endpoint(
        "operator", "GET", "/v1/slots/{slot}", "getNamedSlot", "One slot.",
        models.Slot, tagged=True, refusals=(404,),
    ),
    Endpoint(
        "operator", "PATCH", "/v1/slots/{slot}", "resizeNamedSlot",
        "Set the totals of a slot, or the amounts on one of its cards.",
        models.Resized, body=models.Resize, tagged=True, conditional=True, refusals=(404, 409, 412, 422),
    ),
    Endpoint(
        "operator", "DELETE", "/v1/slots/{slot}", "releaseSlot",
        "Release a slot: it shrinks to nothing and is gone when its memory is free.",
        models.Slot, tagged=True, refusals=(404,),
    ),
    Endpoint(
        "operator", "PUT", "/v1/slots/{slot}/process", "ownSlot",
        "Give the slot to a process; it is released when that process ends, however it ends.",
        models.Slot, body=models.Owner, tagged=True, refusals=(404, 409, 422),
    ),
    Endpoint(
        "operator", "GET", "/v1/explain", "explainPod",
        "What a pod of this node asks for, what it has, and why it has no more.",
        models.Explained, query=("pod", "The pod, as namespace/name."), refusals=(404,),
    ),
    Endpoint(
        "operator", "POST", "/v1/fit", "fitSlots",
        "Tell for each wish whether it could start now. Books nothing.",
        tuple[models.Fit, ...], body=tuple[models.NewSlot, ...],
    ),
)  # fmt: skip
"""Every operation, once."""
