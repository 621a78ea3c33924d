"""Sharing GPUs on a node and in a cluster; knows nothing of Jupyter."""

__version__ = "0.1.0"
