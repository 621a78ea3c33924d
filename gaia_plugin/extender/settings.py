"""What the extender is told: by environment variables that begin with ``GAIA_``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gaia_plugin.errors import Unusable
from gaia_plugin.extender.dropping import UNBOUND_SECONDS
from gaia_plugin.extender.heartbeat import STALE_SECONDS

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})+")


class ExtenderSettings(BaseSettings):
    """Settings of the extender, each an environment variable: `domain` is ``GAIA_DOMAIN``."""

    model_config = SettingsConfigDict(env_prefix="GAIA_", extra="ignore", frozen=True)

    domain: str = Field("gaia.io", description="Domain of resources and annotations, such as gaia.io.")
    kubeconfig: Path | None = Field(
        None, description="How to reach the API server; without it the pod's service account is used."
    )
    extender_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        8899, description="Port on 127.0.0.1 where kube-scheduler asks; 0: any, said in the log."
    )
    stale_seconds: Annotated[float, Field(ge=30)] = Field(
        STALE_SECONDS, description="Seconds without a heartbeat after which a node gets nothing new."
    )
    unbound_seconds: Annotated[float, Field(ge=30)] = Field(
        UNBOUND_SECONDS,
        description="Seconds after which what is reserved for a pod is given up if it is bound nowhere.",
    )

    placement: Literal["priced", "binpack", "spread"] = Field(
        "priced",
        description="Which node is best: where the usual mix loses least room, the fullest, the emptiest.",
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
        if value is not None and not value.is_absolute():
            raise ValueError(f"{value} is not an absolute path")
        return value


def read_settings(**given: object) -> ExtenderSettings:
    """Return the settings from `given` (None: not given) and the environment.

    Raises:
        Unusable: one of them means nothing; names the variable.
    """
    known = {key: value for key, value in given.items() if value is not None}
    try:
        return ExtenderSettings(**known)  # type: ignore[arg-type]
    except ValidationError as error:
        faults = [
            f"GAIA_{str(each['loc'][0]).upper()}: {each['msg'].removeprefix('Value error, ')}."
            if each["loc"]
            else str(each["msg"])
            for each in error.errors()
        ]
        raise Unusable(" ".join(faults)) from None
