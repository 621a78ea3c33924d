"""Which refusals mean that the object is no longer the one that was decided upon."""

import pytest

from gaia_plugin.kube.errors import ApiError


@pytest.mark.parametrize(
    ("status", "message", "conflict"),
    [
        (409, "the object has been modified", True),
        (409, "Precondition failed: UID in precondition: a, UID in object meta: b", True),
        (422, 'Pod "x" is invalid: metadata.uid: Invalid value: "a": field is immutable', True),
        (422, "GPUNode is invalid: status.cards[0].uuid: Required value", False),
        (422, "spec.reservations[0].uid: Too long: may not be more than 253 bytes", False),
        (404, "not found", False),
        (0, "connection refused", False),
    ],
)
def test_only_another_object_is_a_conflict(status: int, message: str, conflict: bool) -> None:
    assert ApiError(status, "Invalid", message).conflict is conflict
