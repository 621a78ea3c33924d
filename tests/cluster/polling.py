"""Wait for something with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: str, check: Callable[[], T], timeout: float, every: float = 0.1) -> T:
    """Call `check` until it answers something true, and return that; after `timeout` s raise TimeoutError."""
    deadline = time.monotonic() + timeout
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s, but not yet so: {what}")
        time.sleep(every)
