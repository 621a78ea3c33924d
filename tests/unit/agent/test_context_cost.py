"""What the probe for a context's cost makes of a driver's answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gaia_plugin.agent import contexts
from gaia_plugin.units import GIB, MIB

UUID = "GPU-00000000-0000-0000-0000-000000000001"


class Driver:
    """Lists whatever process is asked about with the figures of a script; the last one stays."""

    def __init__(self, figures: Sequence[int | str | None]) -> None:
        self._figures = iter(figures)
        self._last: int | str | None = "absent"

    def processes(self, uuid: str) -> dict[int, int | None]:
        self._last = next(self._figures, self._last)
        if self._last == "absent":
            return {}
        assert not isinstance(self._last, str)
        return {self.pid: self._last}

    pid = 0


@pytest.fixture
def probe() -> Iterator[subprocess.Popen[bytes]]:
    ready = [sys.executable, "-c", "print(0, flush=True); import sys; sys.stdin.read()"]
    with subprocess.Popen(ready, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("figures", "cost"),
    [
        ((300 * MIB, 300 * MIB), 300 * MIB),
        (("absent", "absent", 410 * MIB, 410 * MIB), 410 * MIB),
        ((0, 0, 0, 300 * MIB, 300 * MIB), 300 * MIB),  # listed before its memory is
        ((100 * MIB, 200 * MIB, 300 * MIB, 300 * MIB), 300 * MIB),  # still growing
        ((99 * GIB, 99 * GIB), 8 * GIB),  # no context is that large
        ((0,), 0),  # a driver whose contexts cost nothing
        ((None,), None),  # no figure to be had
    ],
)
def test_the_cost_of_a_context_is_what_the_driver_settles_on(
    probe: subprocess.Popen[bytes], figures: tuple[int | str | None, ...], cost: int | None
) -> None:
    driver = Driver(figures)
    driver.pid = probe.pid
    ticks = iter(range(1_000_000))
    found = contexts._figure(probe, UUID, driver, lambda: next(ticks) / 1000)  # type: ignore[arg-type]
    assert found == cost


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    contexts._save(tmp_path / "contexts.json", {"A card": 5 * MIB})
    assert contexts._load(tmp_path / "contexts.json") == {"A card": 5 * MIB}
    (tmp_path / "contexts.json").write_text('{"A card": -1, "B": "x"}')
    assert contexts._load(tmp_path / "contexts.json") == {}
    (tmp_path / "contexts.json").write_text("[noise")
    assert contexts._load(tmp_path / "contexts.json") == {}
