"""Which cards exist, what they hold and how they are linked.

Only `gaia_plugin.gpu.nvml` and what it uses know NVML; everything else here is plain values.
"""

from gaia_plugin.gpu.card import Card, Gpus, Use, Xid
from gaia_plugin.gpu.topology import Level, Tie, Topology

__all__ = ["Card", "Gpus", "Level", "Tie", "Topology", "Use", "Xid"]
