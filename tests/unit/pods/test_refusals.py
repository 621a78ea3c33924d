"""What containers were last refused with is kept until their pods are gone."""

from __future__ import annotations

from gaia_plugin.agent.pods.identity import Owner
from gaia_plugin.agent.pods.refusals import Refusals
from gaia_plugin.errors import Code, Refusal


def test_the_last_refusal_is_kept_with_the_time_of_the_first() -> None:
    now = 1.0
    refusals = Refusals(lambda: now)
    one, other = Owner("u1", "main"), Owner("u2", "main")
    assert refusals.of(one) is None
    refusals.note(one, Refusal(Code.CARD_FULL, "First."))
    refusals.note(other, Refusal(Code.UNAVAILABLE, "Other."))
    now = 5.0
    refusals.note(one, Refusal(Code.CARD_FULL, "Second."))
    kept = refusals.of(one)
    assert kept is not None
    assert (kept.refusal.sentence, kept.first, kept.last) == ("Second.", 1.0, 5.0)
    refusals.forget(lambda uid: uid == "u2")
    assert refusals.of(one) is None
    assert refusals.of(other) is not None
