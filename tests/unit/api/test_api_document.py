"""The document in the repository, the routes and the models say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openapi_spec_validator import validate
from starlette.routing import Route

from gaia_plugin.api import openapi
from gaia_plugin.api.app import make_app

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"


def test_the_document_is_valid_openapi_3_1() -> None:
    document = json.loads(DOCUMENT.read_text())
    assert document["openapi"].startswith("3.1")
    validate(document)


def test_the_document_is_what_endpoints_and_models_say() -> None:
    assert DOCUMENT.read_text() == openapi.text(), (
        "write it anew: python -m gaia_plugin.api.openapi > docs/reference/openapi.json"
    )


def test_every_route_is_in_the_document_and_the_other_way_round(api: Any) -> None:
    documented = {
        (method.upper(), path, operation["tags"][0])
        for path, operations in json.loads(DOCUMENT.read_text())["paths"].items()
        for method, operation in operations.items()
    }
    routed = set()
    for tag, app in (("slot", make_app(api.node, "x")), ("operator", make_app(api.node))):
        for route in app.routes:
            assert isinstance(route, Route)
            routed |= {(method, route.path, tag) for method in (route.methods or set()) - {"HEAD"}}
    assert routed == documented
