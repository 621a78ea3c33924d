"""The agent of one node: it wires cards, ledger, slots and API together.

`core` is what it does, in one thread; `node` answers the API and looks after sockets and
processes; `loops` is what happens by itself.
"""
