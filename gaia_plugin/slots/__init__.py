"""Slot directories: the pages and libraries that hold the programs of a slot to its limits."""
