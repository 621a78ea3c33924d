"""The definition of GPUNode: current, structural, and what it takes and refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from gaia_plugin.kube import crd
from gaia_plugin.kube.gpunode import (
    Amounts,
    CardStatus,
    Condition,
    DesiredStatus,
    Link,
    Reservation,
    SliceStatus,
    SlotStatus,
    Spec,
    Status,
    Summary,
)

SHIPPED = Path(__file__).parents[3] / "deploy" / "crd.yaml"
ONE = Amounts(4, 10)


def plain(item: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(item))


FULL: dict[str, Any] = {
    "apiVersion": "gaia.io/v1alpha1",
    "kind": "GPUNode",
    "metadata": {"name": "node1"},
    "spec": plain(
        Spec((Reservation("u", "main", "GPU-0", ONE, "default/a", "2026-11-29T12:00:00Z"),))
    ),
    "status": plain(
        Status(
            True,
            "2026-11-29T12:00:00Z",
            "1.0",
            (
                CardStatus(
                    "GPU-0", 0, "T4", False, Amounts(60, 100), ONE, "lost", 12, (Link("GPU-1", "NVLink", 4),)
                ),
            ),
            (
                SlotStatus(
                    "u", "main", "Draining", (SliceStatus("GPU-0", ONE, ONE, ONE, 700),), Amounts(8, 20),
                    "elastic", 3, "default/a", "uses more", DesiredStatus("{}", "Deferred", "no room"),
                ),
            ),
            (Condition("UnmanagedProcesses", "True", "Found", "pid 7", "2026-11-29T12:00:00Z"),),
            Summary("1/1", "1/15 GiB", "10/100", "1 GiB, 10 cores"),
        )
    ),
}  # fmt: skip


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for part in schema.get("properties", {}).values():
        yield from schemas(part)
    if "items" in schema:
        yield from schemas(schema["items"])


def test_the_shipped_definition_is_current() -> None:
    assert SHIPPED.read_text() == crd.render(), "make crd"
    assert yaml.safe_load(SHIPPED.read_text()) == crd.definition()


def test_it_is_printed_for_another_domain() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gaia_plugin.kube.crd", "example.org"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert yaml.safe_load(done.stdout) == crd.definition("example.org")
    assert crd.definition("example.org")["metadata"]["name"] == "gpunodes.example.org"


def test_every_part_has_a_type_and_none_may_be_null() -> None:
    for part in schemas(crd.schema()):
        assert isinstance(part["type"], str)
        assert part["type"] != "null"
        assert not {"$ref", "anyOf", "nullable"} & part.keys()
        assert set(part.get("x-kubernetes-list-map-keys", ())) <= set(
            part.get("items", {}).get("required", ())
        )


def test_what_gaia_writes_is_taken_in_full_and_in_brief() -> None:
    check = Draft202012Validator(crd.schema())
    check.validate(FULL)
    check.validate({**FULL, "spec": {}, "status": plain(Status())})
    unknown = [
        CardStatus("GPU-0", 0, "T4", True, ONE, ONE),
        SlotStatus("u", "main", "Making", (SliceStatus("GPU-0", ONE, ONE, ONE),), ONE, "hard", 1),
    ]
    check.validate(
        {
            **FULL,
            "status": {"cards": plain(unknown[:1]), "slots": plain(unknown[1:])},
        }
    )


def test_every_field_that_is_written_is_known() -> None:
    """What a schema does not know the API server drops without a word."""

    def compare(value: Any, schema: dict[str, Any]) -> None:
        if isinstance(value, dict) and schema.get("properties"):
            assert value.keys() == schema["properties"].keys()
            for key, part in value.items():
                compare(part, schema["properties"][key])
        for part in value if isinstance(value, list) else ():
            compare(part, schema["items"])

    compare(FULL, crd.schema())


def test_the_columns_lead_to_what_they_show() -> None:
    known = {"string": str, "boolean": bool, "date": str}
    for name, kind, path, _, _ in crd.COLUMNS:
        value: Any = {**FULL, "metadata": {"creationTimestamp": ""}}
        for step in path.strip(".").split("."):
            value = value[step]
        assert isinstance(value, known[kind]), name


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("spec", {"uid": ""}),
        ("spec", {"uid": None}),
        ("spec", {"container": 3}),
        ("spec", {"card": "x" * 254}),
        ("spec", {"amounts": {"memory": 4}}),
        ("spec", {"amounts": {"memory": 0, "cores": 1}}),
        ("spec", {"amounts": {"memory": 4, "cores": 101}}),
        ("spec", {"amounts": {"memory": 4.5, "cores": 1}}),
        ("spec", {"amounts": {"memory": "4", "cores": 1}}),
        ("spec", {"pod": None}),
        ("status", {"state": "Gone"}),
        ("status", {"generation": -1}),
        ("status", {"desired": None}),
        ("status", {"maximum": {"memory": 1, "cores": 6401}}),
    ],
)
def test_what_is_wrong_is_refused(part: str, change: dict[str, Any]) -> None:
    at = "reservations" if part == "spec" else "slots"
    bad = {**FULL, part: {**FULL[part], at: [{**FULL[part][at][0], **change}]}}
    assert list(Draft202012Validator(crd.schema()).iter_errors(bad))
