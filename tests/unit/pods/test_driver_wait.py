"""The agent waits for a driver that comes late, says what it waits for, and ends when it is told to."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gaia_plugin import paths
from gaia_plugin.agent.pods.driver import locate, until_driver
from gaia_plugin.errors import Unusable
from gaia_plugin.gpu.nvml import Nvml
from gaia_plugin.sim import SimConfig, make_sim


@pytest.mark.parametrize("named", [False, True])
def test_what_is_missing_names_the_variables(tmp_path: Path, named: bool) -> None:
    with pytest.raises(Unusable, match="GAIA_DRIVER_ROOT") as refused:
        locate(tmp_path / "driver" if named else None, tmp_path)
    assert re.search(r"GAIA_DRIVER\b", str(refused.value))
    assert "--sim" not in str(refused.value)
    assert "--driver" not in str(refused.value)


async def test_a_driver_that_comes_late_is_taken(tmp_path: Path) -> None:
    stop = asyncio.Event()
    with capture_logs() as logs:
        waiting = asyncio.create_task(until_driver(None, tmp_path, stop, every=0.01))
        while not logs:
            await asyncio.sleep(0.01)
        place = tmp_path / "usr/lib64"
        make_sim(place, SimConfig(state=tmp_path / "state"))
        found = await asyncio.wait_for(waiting, 60)
    assert found is not None
    directory, gpus = found
    gpus.close()
    assert directory == place


async def test_what_is_waited_for_is_said_again(tmp_path: Path) -> None:
    stop = asyncio.Event()
    with capture_logs() as logs:
        waiting = asyncio.create_task(until_driver(None, tmp_path, stop, every=0.01, again=0.05))
        while len(logs) < 3:
            await asyncio.sleep(0.01)
        stop.set()
        assert await waiting is None
    assert {each["event"] for each in logs} == {"waiting for the driver"}


async def test_a_driver_that_hangs_does_not_keep_the_agent_from_its_end(tmp_path: Path) -> None:
    for name in paths.DRIVER_LIBRARIES:
        (tmp_path / name).touch()
    stop, hangs, ends = asyncio.Event(), threading.Event(), threading.Event()

    def load(_: Path) -> Nvml:
        hangs.set()
        ends.wait(60)
        raise Unusable("too late")

    waiting: asyncio.Task[Any] = asyncio.create_task(until_driver(tmp_path, Path("/"), stop, load=load))
    await asyncio.to_thread(hangs.wait, 60)
    stop.set()
    assert await asyncio.wait_for(waiting, 60) is None
    (left,) = [each for each in threading.enumerate() if each.name == "driver"]
    assert left.daemon
    ends.set()
    await asyncio.to_thread(left.join, 60)
