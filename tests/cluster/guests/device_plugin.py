"""A device plugin to run on a node: each container of `gaia.test/thing` gets the CDI device of a file.

It refuses to let containers start for as long as /run/refuse is there, with the sentence in it.
"""

import asyncio
import json
from pathlib import Path

from gaia_plugin.deviceplugin import Device, Plugin, keep_registered
from gaia_plugin.errors import Code, Refusal

KUBELET = Path("/var/lib/kubelet")
SPEC = Path("/var/run/cdi/thing.json")
REFUSE = Path("/run/refuse")


class Handler:
    """Knows one CDI device, and tells which IDs a container holds in a file that it mounts."""

    def allocate(self, resource: str, ids: frozenset[str]) -> str:
        return "gaia.test/thing=one"

    async def prestart(self, resource: str, ids: frozenset[str]) -> None:
        if REFUSE.exists():
            raise Refusal(Code.CARD_FULL, REFUSE.read_text())
        Path("/run/held").write_text(" ".join(sorted(ids)))


def write_spec() -> None:
    SPEC.parent.mkdir(parents=True, exist_ok=True)
    held = {"hostPath": "/run/held", "containerPath": "/usr/lib/held", "options": ["bind", "ro"]}
    edits = {"env": ["THING=from CDI"], "mounts": [held]}
    spec = {"cdiVersion": "0.6.0", "kind": "gaia.test/thing"}
    SPEC.write_text(json.dumps({**spec, "devices": [{"name": "one", "containerEdits": edits}]}))


async def main() -> None:
    write_spec()
    plugin = Plugin("gaia.test/thing", KUBELET, Handler())
    plugin.update([Device(f"thing-{number}") for number in range(4)])
    await keep_registered([plugin], KUBELET)


if __name__ == "__main__":
    asyncio.run(main())
