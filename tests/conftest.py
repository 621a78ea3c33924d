"""What holds for every test: a busy machine fails none, and nothing of an earlier run is met."""

from __future__ import annotations

import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# how long an example takes says how busy the machine is, and nothing about Gaia
settings.register_profile("gaia", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gaia")

_OWN = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each run folders of a name that none had before.

    A simulated driver's state lies in /dev/shm under a name made of its folder's: with pytest's own
    names, which count from 0 on every fresh machine, what a killed run left there could be met again.
    """
    if not config.option.basetemp:
        config.stash[_OWN] = config.option.basetemp = tempfile.mkdtemp(prefix="gaia-pytest-")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the folders, unless somebody will want to look at them."""
    if exitstatus == 0 and _OWN in session.config.stash:
        shutil.rmtree(session.config.stash[_OWN], ignore_errors=True)
