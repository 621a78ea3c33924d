"""What all daemons of a cluster are told, and how it is read: variables that begin with ``GAIA_``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gaia_plugin.errors import Unusable

LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""One label of a name of the domain name system."""
_DOMAIN: Final = re.compile(rf"{LABEL}(?:\.{LABEL})+")


class ClusterSettings(BaseSettings):
    """What is the same for all of them. Each is an environment variable: `domain` is ``GAIA_DOMAIN``."""

    model_config = SettingsConfigDict(env_prefix="GAIA_", extra="ignore", frozen=True)

    domain: str = Field("gaia.io", description="Domain of resources and annotations, such as gaia.io.")
    kubeconfig: Path | None = Field(
        None, description="How to reach the API server; without it the pod's service account is used."
    )

    @field_validator("domain")
    @classmethod
    def _is_domain(cls, value: str) -> str:
        if len(value) > 100 or _DOMAIN.fullmatch(value) is None:
            raise ValueError(f"{value[:60]!r} is not a domain such as gaia.io")
        return value

    @field_validator("kubeconfig")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        return absolute(value)


S = TypeVar("S", bound=BaseSettings)


def absolute(path: Path | None) -> Path | None:
    """Return a path that is absolute, or None.

    Raises:
        ValueError: it is relative; a daemon has no folder that it would be relative to.
    """
    if path is not None and not path.is_absolute():
        raise ValueError(f"{path} is not an absolute path")
    return path


def read(kind: type[S], given: Mapping[str, object]) -> S:
    """Return settings from `given` (None: not given) and the environment.

    Raises:
        Unusable: one is missing or means nothing; names the variable.
    """
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    try:
        return kind(**known)
    except ValidationError as error:
        faults = [_fault(list(each["loc"]), str(each["msg"]), each["type"]) for each in error.errors()]
        raise Unusable(" ".join(faults)) from None


def _fault(where: list[object], why: str, kind: str) -> str:
    name = f"GAIA_{str(where[0]).upper()}" if where else "The settings"
    if kind == "missing":
        return f"{name} is not set."
    return f"{name}: {why.removeprefix('Value error, ')}."
