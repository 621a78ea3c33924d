"""What the API server refuses, as one exception."""

from __future__ import annotations

import re
from typing import Final

import msgspec

NO_ANSWER: Final = 0
"""The status of an `ApiError` when the server could not be reached or broke off."""

_LONGEST: Final = 600
"""Characters of the server's message that are kept: some quote a whole object."""


_OTHER_UID: Final = re.compile(r"\bmetadata\.uid\b")
"""In the message of a change refused because the object of that name is another one."""


class ApiError(Exception):
    """The API server refused a request, or gave no answer.

    Args:
        status: the HTTP status; 0 (`NO_ANSWER`) where there was no answer.
        reason: the server's word for it, such as ``Conflict``, ``NotFound`` or ``Expired``.
        message: the server's sentence, or ours.
        request: method and path.
        retry_after: seconds that the server asks to wait, if it said so.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, request: str = "", retry_after: float | None = None
    ) -> None:
        about = f" ({request})" if request else ""
        if status == NO_ANSWER:
            super().__init__(f"The Kubernetes API server gave no answer{about}: {message}")
        else:
            super().__init__(f"The Kubernetes API server answered {status} {reason}{about}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def no_answer(self) -> bool:
        """Tell whether it is unknown what became of the request."""
        return self.status == NO_ANSWER

    @property
    def missing(self) -> bool:
        """Tell whether there is no such object."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Tell whether the object is no longer the one that was decided upon.

        A patch that names another UID is answered 409 or, as a change of a field that cannot change,
        422; which of them depends on what the server looks at first.
        """
        return self.status == 409 or (self.status == 422 and _OTHER_UID.search(self.message) is not None)

    @property
    def expired(self) -> bool:
        """Tell whether the version asked for is too old to be watched or listed on."""
        return self.status == 410


class Status(msgspec.Struct, frozen=True):
    """The body of a refusal (``v1.Status``)."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


_STATUS: Final = msgspec.json.Decoder(Status)


def from_body(
    body: bytes | msgspec.Raw, *, status: int = 500, request: str = "", retry_after: float | None = None
) -> ApiError:
    """Return the error that a body of kind Status tells, or one that quotes whatever it is.

    `status` is the HTTP status; 0 to take the one in the body (an ERROR event of a watch has no other).
    """
    try:
        told = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = Status(message=bytes(body)[:_LONGEST].decode("utf-8", "replace").strip())
    code = status or told.code or 500
    message = (told.message or "it said no more.")[:_LONGEST]
    return ApiError(
        code, told.reason or _WORDS.get(code, "Error"), message, request=request, retry_after=retry_after
    )


_WORDS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Gone",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}
