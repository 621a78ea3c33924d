"""Placement in a cluster: the node where a request costs the usual mix least room, then cards on it.

`Fleet` holds the nodes as they stand and answers; it is told of changes one node at a time. How a card
is chosen on a node is decided by the same function as on a single machine (`gaia_plugin.placement.place`).
This package needs numpy and is not imported by its parent, so that a node's agent does not load it.
"""

from gaia_plugin.placement.cluster.ask import Ask, Chosen, NodeState
from gaia_plugin.placement.cluster.fleet import Fleet
from gaia_plugin.placement.cluster.mix import Mix
from gaia_plugin.placement.cluster.options import Options, Rule

__all__ = ["Ask", "Chosen", "Fleet", "Mix", "NodeState", "Options", "Rule"]
