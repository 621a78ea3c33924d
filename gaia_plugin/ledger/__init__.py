"""The node's durable record of slots: the only thing that may grant."""

from gaia_plugin.ledger.faults import LedgerBroken, LedgerDamaged, LedgerUnwritable
from gaia_plugin.ledger.ledger import Ledger
from gaia_plugin.ledger.records import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.ledger.split import split

__all__ = [
    "CardCapacity",
    "Ledger",
    "LedgerBroken",
    "LedgerDamaged",
    "LedgerUnwritable",
    "SliceRecord",
    "SlotRecord",
    "split",
]
