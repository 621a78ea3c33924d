"""How much of a shrunk slot's memory is still in use, measured so that none of it is given away.

After a limit was lowered there may be a process that announced an allocation, saw the old limit
and has not called the driver yet. Its announcement is in `usage`; therefore, and only in this
order: the store, a full fence, the sum of what is announced, then readings of the driver begun
after that sum. What was announced is either still in the sum or already in the second reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gaia_plugin.units import units_up


def measure_use(
    cards: Iterable[str],
    *,
    fence: Callable[[], None],
    pending: Callable[[], Mapping[str, int] | None],
    reading: Callable[[], Mapping[str, int | None]],
    processes: Callable[[], int],
) -> dict[str, int]:
    """Return units in use by card, for `Ledger.settle`; a card that cannot be judged is left out.

    Call it after the page was stored, and settle with the generation that was stored.

    Args:
        cards: UUIDs of the slot's cards.
        fence: puts a full fence between that store and what follows.
        pending: bytes announced by card, over all processes not known dead; None when the usage
            page is damaged.
        reading: begins a new reading of the driver; bytes by card over the slot's processes, None
            where the driver has no figure for one of them. Called twice: a driver may answer the
            first from a sample taken before we asked.
        processes: how many processes of the slot live, counted by other means than `usage` when
            that is damaged. Counts only where there is no figure: none left, then nothing is in use.
    """
    fence()
    announced = pending()
    living = processes()
    reading()
    second = reading()
    return use_by_card(cards, announced, second, living)


def use_by_card(
    cards: Iterable[str],
    announced: Mapping[str, int] | None,
    reading: Mapping[str, int | None],
    living: int,
) -> dict[str, int]:
    """Return units in use by card from what was measured; see `measure_use`."""
    use: dict[str, int] = {}
    for card in cards:
        figure = reading.get(card)
        waiting = None if announced is None else announced.get(card, 0)
        if figure is not None and waiting is not None:
            use[card] = units_up(figure + waiting)
        elif living == 0:
            use[card] = units_up((figure or 0) + (waiting or 0))
    return use
