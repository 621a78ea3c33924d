"""The OpenAPI 3.1 document, made from the endpoints and the models.

``python -m gaia_plugin.api.openapi > docs/reference/openapi.json`` writes it; a test compares.
"""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from typing import Any, Final

import msgspec

from gaia_plugin import __version__
from gaia_plugin.api import models, problems
from gaia_plugin.api.endpoints import ENDPOINTS, Endpoint

_REF: Final = "#/components/schemas/{name}"
_ALWAYS: Final = (400, 503)
_WITH_BODY: Final = (413,)
_DESCRIPTION: Final = (
    "Sizes of GPU slices on one node, over unix sockets. A slot's socket (tag `slot`; "
    "`$GAIA_SLOT_SOCKET`, in a container /run/gaia/agent.sock) speaks for that slot and no other; the "
    "operator's socket (tag `operator`; operator.sock in the state directory) for the whole node. There is "
    "no token: whoever can open the socket is who it is for. Per slot: 8 connections, bodies of 64 KiB, 2 "
    "seconds for a request's head, 100 requests and 5 resizes a second. Memory is bytes, or text with a unit "
    "such as 8GiB; cores are percent of one card's time."
)


def document() -> dict[str, Any]:
    """Return the document as plain values."""
    types = _types()
    _, components = msgspec.json.schema_components(types, schema_hook=_amount, ref_template=_REF)
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gaia dynamic allocation",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://gaia", "description": "any host name; the connection is a unix socket"}],
        "tags": [
            {"name": "slot", "description": "on a slot's socket"},
            {"name": "operator", "description": "on the operator's socket"},
        ],
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items()))},
    }


def _types() -> list[Any]:
    found: list[Any] = [models.Problem]
    for endpoint in ENDPOINTS:
        found += [kind for kind in (endpoint.body, endpoint.answer) if kind is not None]
    return [*found, models.Slot]


def _amount(kind: type) -> dict[str, Any]:
    """Return the schema of an amount, which the models take as it comes and `units` judges."""
    if kind is not object:
        raise NotImplementedError
    return {"type": ["integer", "string", "null"]}


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], schema_hook=_amount, ref_template=_REF)
    return dict(schema)


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.where],
        "responses": _responses(endpoint),
    }
    parameters: list[dict[str, Any]] = []
    if "{slot}" in endpoint.path:
        parameters.append({"name": "slot", "in": "path", "required": True, "schema": {"type": "string"}})
    if endpoint.query is not None:
        name, said = endpoint.query
        parameters.append(
            {"name": name, "in": "query", "required": True, "description": said, "schema": {"type": "string"}}
        )
    if endpoint.conditional:
        parameters.append(
            {
                "name": "If-Match",
                "in": "header",
                "description": "The generation in quotes: take the resize only if the slot still has it.",
                "schema": {"type": "string", "pattern": '^("[0-9]{1,18}"|\\*)$'},
            }
        )
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(endpoint.body)}},
        }
    return operation


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        content = {
            "text/event-stream": {
                "schema": {"type": "string", "description": "`data` of the event `slot` is a Slot."}
            }
        }
    else:
        content = {"application/json": {"schema": _schema(endpoint.answer)}}
    good: dict[str, Any] = {"description": HTTPStatus(endpoint.status).phrase, "content": content}
    if endpoint.tagged:
        good["headers"] = {
            "ETag": {"description": "The slot's generation in quotes.", "schema": {"type": "string"}}
        }
    refused = {
        "description": "Refused",
        "content": {problems.MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
    statuses = {*_ALWAYS, *endpoint.refusals, *(() if endpoint.body is None else _WITH_BODY)}
    responses = {str(endpoint.status): good}
    for status in sorted(statuses):
        responses[str(status)] = {**refused, "description": HTTPStatus(status).phrase}
    return responses


def text() -> str:
    """Return the document as it lies in the repository."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
