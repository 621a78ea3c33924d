"""The sentences with which placement refuses, for a data scientist who wants to go on."""

from __future__ import annotations

from collections.abc import Sequence

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.placement.model import CardState, Request
from gaia_plugin.placement.offers import Offer, best_offer, largest_free, usable
from gaia_plugin.placement.rules import (
    accepts,
    asks_whole_cards,
    cards_wanted,
    find_fault,
    memory_text,
    normalise,
)
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD, MEMORY_UNIT, format_cores


def refuse(request: Request, cards: Sequence[CardState]) -> Refusal:
    """Say why `cards` cannot take a request that they cannot take, and what they could."""
    fitting = [card for card in cards if accepts(request.models, card.model)]
    if not fitting:
        return _no_such_card(request, cards)
    room = usable(request, cards)
    if not room:
        return Refusal(
            Code.UNAVAILABLE,
            "No card can take a slice at the moment: none of them is healthy. `gaia cards` says more.",
        )
    offer = best_offer(request, cards)
    fault = find_fault(request, room[0])
    if fault is not None:
        return _refusal(Code.INVALID_AMOUNT, fault.sentence, offer)
    # What only a sick card could take may fit again tomorrow: that is no invalid amount.
    hopeless = _beyond_these_cards(request, fitting, room)
    if hopeless is not None:
        return _refusal(Code.INVALID_AMOUNT, f"{hopeless} {_you_can_have(offer)}", offer)
    return _refusal(Code.CARD_FULL, _not_free(request, room, offer), offer)


def share_text(share: Share) -> str:
    """Write a share for people: ``8 GiB and 34 % compute``."""
    return f"{memory_text(max(0, share.units))} and {format_cores(max(0, share.cores))} compute"


def _refusal(code: Code, sentence: str, offer: Offer | None) -> Refusal:
    if offer is None:
        return Refusal(code, sentence)
    memory = offer.total.units * MEMORY_UNIT
    return Refusal(code, sentence, best_memory=memory, best_cores=offer.total.cores)


def _no_such_card(request: Request, cards: Sequence[CardState]) -> Refusal:
    if not cards:
        return Refusal(Code.NO_SUCH_CARD, "There is no GPU here that could be shared.")
    wanted = " or ".join(sorted(request.models))
    present = ", ".join(sorted({card.model for card in cards}))
    return Refusal(Code.NO_SUCH_CARD, f"There is no card of model {wanted} here; there is: {present}.")


def _beyond_these_cards(
    request: Request, fitting: Sequence[CardState], room: Sequence[CardState]
) -> str | None:
    """Return why even idle cards could not take the request, or None if they could."""
    count = cards_wanted(request)
    known = [card for card in fitting if card.capacity.units > 0]
    which = "of that model" if request.models else "here"
    if count > len(known):
        have = f"there is only 1 {which}" if len(known) == 1 else f"there are only {len(known)} {which}"
        return f"{count} cards are asked for and {have}."
    able = sum(normalise(request, card).fits(card.capacity) for card in known)
    if able >= count:
        return None
    share, largest = normalise(request, room[0]), room[0].capacity.units
    if count > 1:
        each = f"{memory_text(share.units)} on each of {count} cards"
        return f"{each} is more than they hold; the largest has {memory_text(largest)}."
    needed = -(-share.units // largest)
    spread = f", or spread it over {needed} cards" if needed <= len(known) else ""
    return (
        f"{memory_text(share.units)} is more than one card holds: "
        f"ask for at most {memory_text(largest)}{spread}."
    )


def _not_free(request: Request, room: Sequence[CardState], offer: Offer | None) -> str:
    count = cards_wanted(request)
    if asks_whole_cards(request):
        idle = sum(Share(c.capacity.units, CORES_PER_CARD).fits(c.free) for c in room)
        if idle:
            return f"Of {count} whole cards only {idle} {_is(idle)} free now. {_you_can_have(offer)}"
        what = "No whole card is free now"
    else:
        share = _asked_text(request, normalise(request, room[0]))
        what = (
            f"No card has {share} free now"
            if count == 1
            else f"There are not {count} cards with {share} each free now"
        )
    largest = largest_free(room)
    if largest is None or offer is None:
        return f"{what}. {_you_can_have(None)}"
    if largest == offer.total:
        return f"{what}: the largest free slice is {share_text(largest)}, and you can have up to that."
    hint = _less_compute(request, room)
    return f"{what}: the largest free slice is {share_text(largest)}. {_you_can_have(offer)}{hint}"


def _asked_text(request: Request, share: Share) -> str:
    """Write what is asked for: compute that nobody asked for is said to come with the memory."""
    if request.cores is not None or request.memory_units is None:
        return share_text(share)
    return f"{share_text(share)} (compute that comes with the memory)"


def _less_compute(request: Request, room: Sequence[CardState]) -> str:
    """Point out that all the memory fits if less compute is asked for than comes with it."""
    units = request.memory_units
    if units is None or request.cores is not None or cards_wanted(request) != 1:
        return ""
    cores = max((card.free.cores for card in room if card.free.units >= units), default=0)
    return f" With less compute you can have {share_text(Share(units, cores))}." if cores else ""


def _you_can_have(offer: Offer | None) -> str:
    if offer is None:
        return (
            "Nothing is free right now; try again when somebody has stopped a server or made a slice smaller."
        )
    count = cards_wanted(offer.request)
    if asks_whole_cards(offer.request):
        whole = "1 whole card" if count == 1 else f"{count} whole cards"
        return f"You can have {whole} ({memory_text(offer.total.units)}) now."
    over = f" in total, over {count} cards" if count > 1 else ""
    return f"You can have up to {share_text(offer.total)}{over} now."


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
