"""The definition of `GPUNode` for the API server, made from the types that Gaia reads and writes. Pure.

`python -m gaia_plugin.kube.crd [DOMAIN]` prints it; ``deploy/crd.yaml`` is that for ``gaia.io``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml  # type: ignore[import-untyped,unused-ignore]
from msgspec.inspect import (
    BoolType,
    IntType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    UnionType,
    VarTupleType,
    type_info,
)

from gaia_plugin.kube import gpunode
from gaia_plugin.kube.pods import DOMAIN

Schema = dict[str, Any]

COLUMNS: Final = (
    ("Ready", "boolean", ".status.ready", "Whether something new may be placed on the node", 0),
    ("Cards", "string", ".status.summary.cards", "Healthy cards, of how many", 0),
    ("Memory", "string", ".status.summary.memory", "Memory that is free, of how much", 0),
    ("Cores", "string", ".status.summary.cores", "Cores that are free, of how many", 0),
    ("Largest", "string", ".status.summary.largest", "The largest slice that one card could still give", 0),
    ("Heartbeat", "date", ".status.heartbeat", "When its agent last wrote; it does each half minute", 0),
    ("Version", "string", ".status.agentVersion", "Of its agent", 1),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
)
"""Name, type, path, description, priority (1: only with ``-o wide``)."""


def definition(domain: str = DOMAIN) -> Schema:
    """Return the CustomResourceDefinition of GPUNodes of a domain."""
    version = {
        "name": gpunode.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
        "schema": {"openAPIV3Schema": schema()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{gpunode.PLURAL}.{domain}"},
        "spec": {
            "group": domain,
            "scope": "Cluster",
            "names": {
                "kind": gpunode.KIND,
                "listKind": f"{gpunode.KIND}List",
                "plural": gpunode.PLURAL,
                "singular": gpunode.KIND.lower(),
                "shortNames": ["gn"],
            },
            "versions": [version],
        },
    }


def schema() -> Schema:
    """Return the structural schema (OpenAPI v3, no references) of an object.

    Only what has no default is required: an agent of yesterday must be able to write under the
    definition of tomorrow. Nothing may be null; what is unknown is left out.
    """
    parts = {name: _schema(type_info(kind)) for name, kind in _PARTS.items()}
    return {
        "type": "object",
        "description": "The cards of a node, who has which share of them, and what is promised on them.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **parts,
        },
    }


_PARTS: Final[Mapping[str, Any]] = {"spec": gpunode.Spec, "status": gpunode.Status}


def render(domain: str = DOMAIN) -> str:
    """Return the definition as YAML, with a line that says how it is made."""
    head = "# Made from gaia_plugin/kube/gpunode.py by `make crd`: GPUNode, one object for each node.\n"
    text: str = yaml.safe_dump(definition(domain), sort_keys=False, width=110, allow_unicode=True)
    return head + text


def _column(name: str, kind: str, path: str, description: str, priority: int) -> Schema:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description, "priority": priority}
    return {key: value for key, value in column.items() if value not in ("", 0)}


def _schema(kind: msgspec.inspect.Type) -> Schema:
    match kind:
        case Metadata():
            return _merged(_schema(kind.type), kind.extra_json_schema or {})
        case StructType():
            return _object(kind)
        case VarTupleType():
            return _bounded(
                {"type": "array", "items": _schema(kind.item_type)},
                minItems=kind.min_length,
                maxItems=kind.max_length,
            )
        case LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case BoolType():
            return {"type": "boolean"}
        case IntType():
            return _bounded({"type": "integer", "format": "int64"}, minimum=kind.ge, maximum=kind.le)
        case StrType():
            return _bounded({"type": "string"}, minLength=kind.min_length, maxLength=kind.max_length)
        case UnionType():
            # None says that it is left out, and what is left out is not in the object
            (only,) = (each for each in kind.types if not isinstance(each, NoneType))
            return _schema(only)
    raise TypeError(f"{kind} has no place in a definition")


def _object(kind: StructType) -> Schema:
    made: Schema = {
        "type": "object",
        "description": " ".join(inspect.cleandoc(kind.cls.__doc__ or "").replace("``", "").split()),
        "properties": {field.encode_name: _schema(field.type) for field in kind.fields},
    }
    required = [field.encode_name for field in kind.fields if field.required]
    return {**made, "required": required} if required else made


def _bounded(schema: Schema, **bounds: int | None) -> Schema:
    return {**schema, **{key: bound for key, bound in bounds.items() if bound is not None}}


def _merged(schema: Schema, more: Mapping[str, Any]) -> Schema:
    """Return a schema with more said about it, at whatever depth."""
    merged = dict(schema)
    for key, value in more.items():
        if key == "description" and key in schema:  # first what the field is, then what its type is
            merged[key] = f"{value} {schema[key]}"
            continue
        both = isinstance(value, Mapping) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def main(words: Sequence[str]) -> None:
    """Print the definition for the domain that is named."""
    sys.stdout.write(render(*words[:1]))


if __name__ == "__main__":
    main(sys.argv[1:])
