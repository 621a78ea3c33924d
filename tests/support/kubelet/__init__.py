"""A simulated kubelet that speaks the real protocols over real sockets."""

from tests.support.kubelet.cdi import Edits, Mounted
from tests.support.kubelet.kubelet import SimulatedKubelet, until
from tests.support.kubelet.pods import Container, Kind, Pod, State

__all__ = ["Container", "Edits", "Kind", "Mounted", "Pod", "SimulatedKubelet", "State", "until"]
