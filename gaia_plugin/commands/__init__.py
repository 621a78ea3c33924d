"""The commands of `gaia`, one file each."""
