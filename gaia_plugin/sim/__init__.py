"""The simulated GPU: a driver directory of its own, its cards, and what a test may know of them.

`make_sim` writes a directory with the simulated libcuda and libnvidia-ml and their ``sim.conf``;
programs use it through LD_LIBRARY_PATH. `Simulation` reads the truth and injects faults.
"""

from gaia_plugin.sim.config import CardConfig, Level, Link, SimConfig
from gaia_plugin.sim.make import default_sim, make_sim
from gaia_plugin.sim.observe import CardTime
from gaia_plugin.sim.probe import leave
from gaia_plugin.sim.truth import SimProcess, Simulation

__all__ = [
    "CardConfig",
    "CardTime",
    "Level",
    "Link",
    "SimConfig",
    "SimProcess",
    "Simulation",
    "default_sim",
    "leave",
    "make_sim",
]
