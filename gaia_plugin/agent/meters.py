"""What code tells an observer of its own doing; by default nobody listens.

One object is handed down from `main`. Its methods return at once and never raise: who is measured must not
depend on who measures. They are called on the event loop only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, Protocol

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube.errors import ApiError


class Outcome(StrEnum):
    """How something ended, in the words of the metrics."""

    OK = "ok"
    REFUSED = "refused"
    """By a rule: no room, over the maximum, a shape that cannot be. Of a write: the API server did."""
    CONFLICT = "conflict"
    """Another writer was faster: the API server answered 409."""
    UNAVAILABLE = "unavailable"
    """No answer from somebody that is needed: API server, driver, kubelet."""
    FAILED = "failed"
    """Anything else: a fault of the agent or of its machine."""


GPUNODE: Final = "gpunode"
"""What `Meter.wrote` calls a status of the GPUNode; one that was taken is the node's heartbeat."""


class Meter(Protocol):
    """Is told what happened; one call for each event, after it ended."""

    def resized(self, seconds: float, outcome: Outcome) -> None:
        """A change of a slot's size: seconds from the request until the page has it, or until its refusal.

        A shrink that has to drain is `OK` as soon as the new, smaller target is in force. Whoever offers
        `resize` to the API tells it, with `timed`.
        """

    def refused(self, code: str) -> None:
        """A request was refused, with a code of `gaia_plugin.errors.Code`.

        Told where the refusal leaves the agent, and nowhere else: by the API's sockets, by
        PreStartContainer, and by whoever carries out an annotation.
        """

    def prestart(self, seconds: float, outcome: Outcome) -> None:
        """The kubelet's PreStartContainer: seconds from its call to its answer."""

    def allocated(self) -> None:
        """The kubelet's Allocate of one container was answered."""

    def wrote(self, what: str, outcome: Outcome) -> None:
        """Something was written to the API server: `what` is a fixed word, such as `GPUNODE`."""


class Nobody:
    """The `Meter` of who is not watched."""

    def resized(self, seconds: float, outcome: Outcome) -> None:
        """Forget it."""

    def refused(self, code: str) -> None:
        """Forget it."""

    def prestart(self, seconds: float, outcome: Outcome) -> None:
        """Forget it."""

    def allocated(self) -> None:
        """Forget it."""

    def wrote(self, what: str, outcome: Outcome) -> None:
        """Forget it."""


NOBODY: Final[Meter] = Nobody()
"""The default of everything that takes a `Meter`."""


@contextmanager
def timed(
    report: Callable[[float, Outcome], None], clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Report how long the block took and how it ended; what is cancelled has not ended by itself.

    Args:
        report: `Meter.resized` or `Meter.prestart`.
        clock: monotonic seconds.
    """
    begun = clock()
    try:
        yield
    except Refusal as refusal:
        away = refusal.code is Code.UNAVAILABLE
        report(clock() - begun, Outcome.UNAVAILABLE if away else Outcome.REFUSED)
        raise
    except Exception:
        report(clock() - begun, Outcome.FAILED)
        raise
    report(clock() - begun, Outcome.OK)


@contextmanager
def writing(meter: Meter, what: str) -> Iterator[None]:
    """Report how a write to the API server ended: the block makes it, and `ApiError` tells its failure."""
    try:
        yield
    except ApiError as error:
        meter.wrote(what, outcome_of(error))
        raise
    meter.wrote(what, Outcome.OK)


def outcome_of(error: ApiError) -> Outcome:
    """Return how a request to the API server ended that raised this."""
    if error.conflict:
        return Outcome.CONFLICT
    if error.no_answer or error.status == 429 or error.status >= 500:
        return Outcome.UNAVAILABLE
    return Outcome.REFUSED
