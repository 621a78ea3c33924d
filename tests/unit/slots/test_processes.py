"""Processes are known by pid and start time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from gaia_plugin.slots import processes
from gaia_plugin.slots.processes import Watch, alive, parse_stat, process_name, start_time, wait_ended

STAT = b"%d (%s) %s 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 %d 0 %d 100 1 18446744073709551615"
SLEEPER = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.mark.parametrize("name", [b"python", b"a b", b"a) Z (b", b"(", b")", b"", b"\xff\n) R 1 1"])
def test_the_name_may_hold_anything(name: bytes) -> None:
    found = parse_stat(STAT % (7, name, b"S", 3, 4321))
    assert found is not None
    assert (found.name, found.state, found.threads, found.start) == (
        name.decode("utf-8", "replace"),
        "S",
        3,
        4321,
    )


@pytest.mark.parametrize("text", [b"", b"7 (x", b"7 (x) S 1 2", STAT.replace(b"%d", b"x") % (b"n", b"S")])
def test_what_is_no_stat_is_nothing(text: bytes) -> None:
    assert parse_stat(text) is None


@pytest.mark.parametrize(
    ("state", "threads", "lives"), [("S", 1, True), ("Z", 1, False), ("Z", 2, True), ("X", 1, False)]
)
def test_a_zombie_lives_only_while_its_threads_do(
    monkeypatch: pytest.MonkeyPatch, state: str, threads: int, lives: bool
) -> None:
    monkeypatch.setattr(processes, "stat", lambda pid, proc: processes.Stat("x", state, threads, 9))
    assert alive(1, 9) is lives


def test_this_process_lives_and_its_twin_does_not() -> None:
    start = start_time(os.getpid())
    assert start is not None
    assert alive(os.getpid(), start)
    assert not alive(os.getpid(), start + 1)
    assert process_name(os.getpid())


@pytest.mark.parametrize("pid", [-1, 0, 1 << 22, 1 << 70])
def test_no_such_process(pid: int) -> None:
    assert start_time(pid) is None
    assert not alive(pid, 0)
    assert process_name(pid) == ""


def test_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: start_time(child.pid) is None)
    child.wait()
    assert start_time(child.pid) is None


async def test_a_watch_tells_once_when_the_process_ends() -> None:
    child = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
    start = start_time(child.pid)
    assert start is not None
    told: list[int] = []
    Watch(child.pid, start, lambda: told.append(1))
    closed = Watch(child.pid, start, lambda: told.append(2))
    closed.close()
    ended = asyncio.ensure_future(wait_ended(child.pid, start))
    await asyncio.sleep(0)
    assert not ended.done()
    child.kill()
    await asyncio.wait_for(ended, 60)
    child.communicate()
    assert told == [1]


@pytest.mark.parametrize("pid", [os.getpid(), 1 << 22, -1, 1 << 70])
async def test_a_watch_on_what_has_ended_tells_at_once(pid: int) -> None:
    await asyncio.wait_for(wait_ended(pid, 1), 60)


async def test_without_pidfd_a_watch_looks_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pid: int) -> int:
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", missing)
    monkeypatch.setattr(processes, "_POLL", 0.001)
    child = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
    start = start_time(child.pid)
    assert start is not None
    ended = asyncio.ensure_future(wait_ended(child.pid, start))
    await asyncio.sleep(0)
    child.kill()
    await asyncio.wait_for(ended, 60)
    child.communicate()
