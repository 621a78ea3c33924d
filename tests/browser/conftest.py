"""How long a page may take on a machine that has other things to do."""

from __future__ import annotations

from playwright.sync_api import expect

expect.set_options(timeout=60_000)
