"""What an agent on a Kubernetes node is told: by environment variables that begin with ``GAIA_``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from gaia_plugin.agent.alarm import HARMLESS
from gaia_plugin.metrics.address import Address, parse_address
from gaia_plugin.settings import LABEL, ClusterSettings, absolute, read

_NODE: Final = re.compile(rf"{LABEL}(?:\.{LABEL})*")

MEMORY: Final = "vgpu-memory"
CORES: Final = "vgpu-cores"

NO_ROOM_SECONDS: Final = 120.0
"""A pod that no card takes for so long is deleted: Kubernetes never takes a binding back."""


class AgentSettings(ClusterSettings):
    """Settings of an agent on a node. Each is an environment variable: `node_name` is ``GAIA_NODE_NAME``."""

    node_name: str = Field(
        description="Name of this node in the cluster; the chart sets it from spec.nodeName."
    )
    kubelet_dir: Path = Field(Path("/var/lib/kubelet"), description="The kubelet's root directory.")
    cdi_dir: Path = Field(Path("/var/run/cdi"), description="Where CDI specs are written for the runtime.")
    state: Path = Field(Path("/var/lib/gaia"), description="The agent's state directory; on the node's disk.")
    driver: Path | None = Field(
        None, description="Directory of libcuda.so.1 and libnvidia-ml.so.1 as this process sees it."
    )
    driver_root: Path = Field(
        Path("/"), description="Where the node's root is mounted, for finding the driver's files."
    )
    check_runtime: bool = Field(
        True, description="Refuse to start when the container runtime is known to have CDI switched off."
    )
    compute_ceiling: Annotated[int, Field(ge=1, le=100)] = Field(
        100, description="Percent of a card's time that its elastic slots may have in all."
    )
    harmless_xids: Annotated[tuple[int, ...], NoDecode] = Field(
        HARMLESS, description="XIDs, with commas between, after which a card stays in use."
    )
    evict_unmanaged: bool = Field(
        False, description="Delete pods whose processes hold memory of a card past Gaia's library."
    )
    no_room_seconds: Annotated[float, Field(ge=1)] = Field(
        NO_ROOM_SECONDS, description="Seconds after which a pod that no card of this node takes is deleted."
    )
    metrics_address: Annotated[Address | None, NoDecode] = Field(
        Address("", 9478),
        description="Where metrics are served, such as :9478 or 127.0.0.1:9478; off: nowhere.",
    )

    @field_validator("metrics_address", mode="before")
    @classmethod
    def _is_address(cls, value: object) -> object:
        return parse_address(value) if isinstance(value, str) else value

    @field_validator("harmless_xids", mode="before")
    @classmethod
    def _are_numbers(cls, value: object) -> object:
        return [each for each in value.replace(",", " ").split() if each] if isinstance(value, str) else value

    @field_validator("node_name")
    @classmethod
    def _is_node(cls, value: str) -> str:
        if len(value) > 253 or _NODE.fullmatch(value) is None:
            raise ValueError(f"{value[:60]!r} is not the name of a node")
        return value

    @field_validator("kubelet_dir", "cdi_dir", "state", "driver_root", "driver")
    @classmethod
    def _are_absolute(cls, value: Path | None) -> Path | None:
        return absolute(value)

    @property
    def memory(self) -> str:
        """Return the full name of the resource for memory."""
        return f"{self.domain}/{MEMORY}"

    @property
    def cores(self) -> str:
        """Return the full name of the resource for compute."""
        return f"{self.domain}/{CORES}"

    @property
    def kind(self) -> str:
        """Return the kind of CDI devices, with which the names of slots are qualified."""
        return f"{self.domain}/slot"


def read_settings(**given: object) -> AgentSettings:
    """Return the settings from `given` (None: not given) and the environment.

    Raises:
        Unusable: one is missing or means nothing; names the variable.
    """
    return read(AgentSettings, given)
