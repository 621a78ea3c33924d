"""The example notebook, run from top to bottom by nbclient in a real slice of the simulated GPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "first-slice.ipynb"
RUN = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", ""), end="")
"""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory; the agent that `gaia run` starts in it is stopped."""
    yield tmp_path / "state"
    for note in (tmp_path / "state").glob("*/agent.json"):
        with suppress(ProcessLookupError):
            os.kill(json.loads(note.read_text())["pid"], signal.SIGTERM)


def test_the_notebook_fills_its_slice_grows_and_goes_on(tmp_path: Path, state: Path) -> None:
    driver = tmp_path / "driver"
    shutil.copytree(str(files("gaia_plugin") / "lib" / "sim"), driver)
    # a state file of its own, so that nothing is left in /dev/shm
    (driver / "sim.conf").write_text(f"state = {tmp_path / 'sim-state'}\n")
    program = [sys.executable, "-c", RUN, str(NOTEBOOK)]
    gaia = Path(sys.executable).with_name("gaia")
    done = subprocess.run(
        [gaia, "run", "--driver", driver, "--memory", "2GiB", "--cores", "25", "--", *program],
        env={**os.environ, "GAIA_STATE": str(state)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    for text in (
        "The slice has 2 GiB",
        "then CUDA_ERROR_OUT_OF_MEMORY (error 2).",
        "Nobody used the panel, so the cell asks:",
        "4 more blocks.",
        "The first and the last block can be written.",
    ):
        assert text in done.stdout
