"""A container's processes are found by the kernel's word alone, and ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gaia_plugin import __version__
from gaia_plugin.agent.pods.watch import library_note, version_text
from gaia_plugin.slots import stop
from gaia_plugin.slots.processes import start_time

HEADER = Path(__file__).parents[3] / "libvgpu/src/core/register.h"


@dataclass(frozen=True)
class Target:
    pid: int
    start: int


def sleeper() -> tuple[subprocess.Popen[bytes], Target]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    start = start_time(process.pid)
    assert start is not None
    return process, Target(process.pid, start)


def test_everything_that_lives_is_killed_also_what_was_forked_meanwhile() -> None:
    (first, one), (second, two) = sleeper(), sleeper()
    answers = iter([[one], [one, two], [two]])
    assert stop.kill_all(lambda: next(answers)) == 2
    assert (first.wait(), second.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    for process in (first, second):
        process.communicate()


def test_another_process_of_the_same_pid_is_left_alone() -> None:
    process, target = sleeper()
    stop.kill_all(lambda: [Target(target.pid, target.start + 1)])
    assert process.poll() is None
    process.kill()
    process.communicate()
    stop.kill_all(lambda: [target])  # it is gone: no fault


def test_neither_this_process_nor_the_first_one_is_killed() -> None:
    start = start_time(os.getpid())
    assert start is not None
    stop.kill_all(lambda: [Target(os.getpid(), start), Target(1, start_time(1) or 0)])


def test_the_librarys_version_is_that_of_this_package() -> None:
    words = re.search(
        r"GAIA_LIBRARY_VERSION \(UINT64_C\((\d+)\) << 32 \| UINT64_C\((\d+)\) << 16 \| UINT64_C\((\d+)\)\)",
        HEADER.read_text(),
    )
    assert words is not None
    major, minor, patch = map(int, words.groups())
    assert version_text(major << 32 | minor << 16 | patch) == f"{major}.{minor}.{patch}" == __version__


def test_programs_with_another_version_are_told_of() -> None:
    assert library_note({__version__: 3}) == ""
    assert library_note({}) == ""
    assert library_note({"0.0.1": 1, __version__: 2}).startswith("1 program has version 0.0.1 of")
    assert library_note({"0.0.1": 1, "0.0.2": 1}).startswith("2 programs have version 0.0.1 and 0.0.2 of")
