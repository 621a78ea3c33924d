"""What the extender is told: by environment variables that begin with ``GAIA_``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gaia_plugin.extender.dropping import UNBOUND_SECONDS
from gaia_plugin.extender.heartbeat import STALE_SECONDS
from gaia_plugin.settings import ClusterSettings, read


class ExtenderSettings(ClusterSettings):
    """Settings of the extender, each an environment variable: `domain` is ``GAIA_DOMAIN``."""

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


def read_settings(**given: object) -> ExtenderSettings:
    """Return the settings from `given` (None: not given) and the environment.

    Raises:
        Unusable: one of them means nothing; names the variable.
    """
    return read(ExtenderSettings, given)
