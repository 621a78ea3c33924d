"""A program that uses the simulated driver: statements go in, values come out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PREAMBLE = '''
import ctypes, json, os, sys, warnings
warnings.simplefilter("ignore")
from cuda.bindings import driver as cu
def ok(result):
    """Values of a call that must succeed."""
    assert int(result[0]) == 0, result[0]
    return result[1] if len(result) == 2 else result[1:]
def code(result):
    return int(result[0])
def start(device=0):
    """Initialise and make the primary context of a device current."""
    ok(cu.cuInit(0))
    context = ok(cu.cuDevicePrimaryCtxRetain(device))
    ok(cu.cuCtxSetCurrent(context))
    return context
MIB = 1 << 20
GIB = 1 << 30
'''
SERVE = """
def plain(value):
    try:
        return int(value)
    except TypeError:
        return None
for line in sys.stdin:
    try:
        code_ = json.loads(line)
        try:
            answer = eval(code_)
        except SyntaxError:
            exec(code_)
            answer = None
        print(json.dumps({"value": answer}, default=plain), flush=True)
    except BaseException as trouble:
        print(json.dumps({"error": repr(trouble)}), flush=True)
"""


def environment(driver: Path, **more: str) -> dict[str, str]:
    """Return the environment in which programs find the simulated driver."""
    hidden = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GAIA_SIM_CONF")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**clean, "LD_LIBRARY_PATH": str(driver), **more}


def run_code(driver: Path, code: str, **environ: str) -> Any:
    """Run a program that prints one JSON value as its last line, and return the value."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code],
        env=environment(driver, **environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class Client:
    """A running program that one can talk to, and kill."""

    def __init__(self, driver: Path, *, before: Sequence[str] = (), **environ: str) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", PREAMBLE + SERVE],
            env=environment(driver, **environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def ask(self, code: str) -> None:
        """Send a statement without waiting for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return the value of the oldest statement not yet answered."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def do(self, code: str) -> Any:
        """Run a statement and return its value."""
        self.ask(code)
        return self.answer()

    def kill(self) -> None:
        """Kill it as it stands, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let it end by itself, as far as it still runs."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=120)
        self.process.stdout.close()
