"""What is searched: small worlds, each chosen so that some rules matter in it."""

from __future__ import annotations

from itertools import chain

from tests.model.state import Story

ALONE = Story(
    "a slot alone is resized", 3, (3,), running=1, allocates=(0,), resizable=(0,), resizes=2, losses=1
)  # fmt: skip
KILLED = Story(
    "a slot is resized, killed", 2, (2,), running=1, allocates=(0,), resizable=(0,), resizes=1, crashes=1
)  # fmt: skip
LATE_STORE = Story(
    "a store is seen late", 2, (2,), running=1, allocates=(0,), resizable=(0,), resizes=1, late_stores=True
)  # fmt: skip
GROW_BIND = Story("a grow against a bind", 2, (1, 1), running=1, resizable=(0,), resizes=1, losses=1)
GROW_BIND_KILLED = Story(
    "a grow against a bind, killed", 2, (1, 1), running=1, resizable=(0,), resizes=1, crashes=1
)  # fmt: skip
TWO_GROWS = Story("two grows", 3, (1, 1), running=2, resizable=(0, 1), resizes=2)
AGAIN = Story("a grow is tried again against a bind", 2, (1, 1), running=1, resizable=(0,), resizes=2)
OVERTAKEN = Story("a grow is overtaken", 3, (2,), running=1, resizable=(0,), resizes=3)
TWO_GROWS_BIND = Story(
    "two grows against a bind", 4, (1, 1, 1), running=2, resizable=(0, 1), resizes=2, ends=False
)  # fmt: skip
MADE_ANEW = Story(
    "the object is made anew", 2, (1, 1), running=1, resizable=(0,), resizes=1, losses=1, deletions=1
)  # fmt: skip
TWO_BINDS = Story("two binds", 1, (1, 1), crashes=1, losses=1, elsewhere=True)
START = Story("a start", 1, (1,), starts=(0,), allocates=(0,), crashes=1, losses=1, stale_views=True)
NAME = Story("a name comes back", 2, (1, 1), starts=(0, 1), heir_of=(0, 1), stale_views=True)
EVICTED = Story("a pod is evicted", 1, (1, 1), starts=(0,), heir_of=(0, 1), evictions=1, stale_views=True)
LIAR = Story(
    "a liar", 2, (1,), running=1, allocates=(0,), liar=0, thefts=1, resizable=(0,), resizes=1, crashes=1
)  # fmt: skip
OVERBOOKED = Story(
    "a liar overbooks the card", 2, (1, 1), running=2, allocates=(0,), liar=0, thefts=1, ends=False
)  # fmt: skip
BLIND = Story(
    "a driver without figures", 2, (2,), running=1, allocates=(0,), resizable=(0,), resizes=1, figures=False
)  # fmt: skip
START_RESIZED = Story("a start is resized", 2, (1,), starts=(0,), resizable=(0,), resizes=1)

SHORT = (
    ALONE, KILLED, LATE_STORE, BLIND, GROW_BIND, GROW_BIND_KILLED, AGAIN, OVERTAKEN, TWO_GROWS,
    TWO_GROWS_BIND, MADE_ANEW, TWO_BINDS, START, START_RESIZED, NAME, EVICTED, LIAR, OVERBOOKED,
)  # fmt: skip
"""Searched in every test run: seconds."""

LONG = (
    Story("two grows against a bind, with an end", 4, (1, 1, 1), running=2, resizable=(0, 1), resizes=2),
    Story(
        "two grows, killed, an answer lost",
        3, (1, 1), running=2, resizable=(0, 1), resizes=2, crashes=1, losses=1,
    ),
    Story("three binds", 2, (1, 1, 1), crashes=1, losses=1, elsewhere=True),
    Story(
        "a grow against two binds, killed",
        3, (1, 1, 1), running=1, resizable=(0,), resizes=1, losses=1, crashes=1,
    ),
    Story(
        "a liar beside another",
        2, (1, 1), running=2, allocates=(0,), liar=0, thefts=1, resizable=(0, 1), resizes=1,
    ),
    Story("a name comes back, killed", 2, (1, 1), starts=(0, 1), heir_of=(0, 1), stale_views=True, crashes=1),
)  # fmt: skip
"""Larger bounds: minutes, and some GiB of memory."""

MATTERS = {
    ALONE: (
        "hold_keeps_held", "undo_by_shrink_rule", "held_waits_for_use", "generation_checked", "status_is_new",
    ),
    OVERBOOKED: ("members_from_outside", "stop_overbooker"),
    BLIND: ("no_figure_is_not_zero",),
    START_RESIZED: ("reserved_is_not_resized",),
    KILLED: ("recover_stores_target",),
    LATE_STORE: (
        "store_before_claim", "fence_before_pending", "announce_before_limit", "pending_counts",
        "dead_do_not_count", "sum_before_readings", "two_readings",
    ),
    GROW_BIND: (
        "held_before_target", "put_before_commit", "commit_before_page", "settle_spares_grow",
        "free_counts_status", "free_counts_reservations", "grow_counts_reservations",
        "status_carries_version", "reservation_carries_version", "sync_compares",
        "status_after_get", "status_rebuilt",
    ),
    AGAIN: ("vain_counts",),
    OVERTAKEN: ("commits_ones_own",),
    TWO_GROWS: ("capacity_counts_held", "told_was_built"),
    MADE_ANEW: ("blank_offers_nothing",),
    TWO_BINDS: (
        "reservation_before_binding", "bind_always_puts", "binding_carries_version", "version_before_put",
        "drop_asks_live", "drop_writes_pod", "drop_first_version", "drop_when_gone",
        "reservation_is_new", "touch_is_new",
    ),
    START: (
        "release_writes_page", "remove_at_zero", "only_the_end_releases", "release_asks_live",
        "sweep_takes_back", "one_agent",
    ),
    NAME: ("uid_decides", "names_never_recur"),
    EVICTED: ("delete_carries_uid",),
    LIAR: ("driver_is_truth", "raise_held", "raise_voids_claims"),
}  # fmt: skip
"""In which story a rule is left out by the test."""

NOT_NEEDED = {
    "recover_takes_back": "a start that was not finished is struck out by the next PreStart, or when its pod "
    "has ended; the code does it at once, because what it has booked is lost to others until then",
}
"""Rules that nothing within these bounds depends on, and why."""

WHERE = {rule: each.name for each, rules in MATTERS.items() for rule in rules}


def story(name: str) -> Story:
    """Return the story of that name."""
    return next(each for each in chain(SHORT, LONG) if each.name == name)
