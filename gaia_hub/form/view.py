"""What the spawn page says: cards with what is free, options with the reason against them.

Pure: the menu and the node's answers in, plain texts and numbers out. The template only places
them, so everything that a reader could dispute is decided and tested here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gaia_hub.profiles import MODES, OWN, Choice, Menu, Mode
from gaia_plugin.api.models import CardView, Fit
from gaia_plugin.units import CORES_PER_CARD, GIB, MEMORY_UNIT, format_cores, format_memory

MODE_WORDS: Mapping[Mode, tuple[str, str]] = {
    "hard": ("Hard", "Exactly this share of the card's time: the same speed whatever others do."),
    "elastic": ("Elastic", "At least this share, and more while the card is idle: the speed varies."),
}
"""The modes of compute by name, and what each means to who chooses one."""

AWAY = "The GPU service of this machine is not answering, so only a server without a GPU can start now."
NO_CARDS = "There is no GPU on this machine, so only a server without a GPU can start."


@dataclass(frozen=True)
class Availability:
    """What the node answered: its cards, a `Fit` per key of the menu, and a problem in words.

    With a problem there are no answers, and only a choice without a GPU can start.
    """

    cards: tuple[CardView, ...] = ()
    fits: Mapping[str, Fit] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Bar:
    """One amount on a card: a text that says it all, and the percentage that is taken."""

    label: str
    text: str
    taken: int


@dataclass(frozen=True)
class CardLine:
    """One card of the page."""

    title: str
    bars: tuple[Bar, ...]
    note: str
    healthy: bool


@dataclass(frozen=True)
class Option:
    """One radio button. `reason` is why it cannot be chosen now; empty: it can."""

    key: str
    name: str
    amount: str
    description: str
    growth: str
    reason: str
    selected: bool


@dataclass(frozen=True)
class ModeOption:
    """One radio button of the mode of compute."""

    key: str
    name: str
    sentence: str
    selected: bool


@dataclass(frozen=True)
class NumberFields:
    """The two number fields of own numbers, as texts (memory in GiB), and the mode."""

    memory: str
    memory_step: str
    memory_most: str
    memory_hint: str
    cores: str
    cores_most: str
    cores_hint: str
    modes: tuple[ModeOption, ...]


@dataclass(frozen=True)
class Page:
    """The spawn page's own part."""

    notice: str
    cards: tuple[CardLine, ...]
    options: tuple[Option, ...]
    numbers: NumberFields | None


def build_page(
    menu: Menu, availability: Availability, entered: Mapping[str, Sequence[object]] | None = None
) -> Page:
    """Return the page for what is free now; `entered` is a refused form, to be shown again."""
    previous = {key: values[0] for key, values in (entered or {}).items() if len(values) == 1}
    choices = [menu.choice(profile.key) for profile in menu.profiles]
    reasons = {choice.profile: _reason(choice, availability) for choice in choices}
    if menu.own.enabled:
        reasons[OWN] = _reason(menu.smallest_own(), availability)
    selected = _selected(reasons, previous.get("profile"))
    options = [
        Option(
            key=choice.profile,
            name=choice.name,
            amount=_amount(choice, availability.cards),
            description=profile.description,
            growth=_growth(choice),
            reason=reasons[choice.profile],
            selected=choice.profile == selected,
        )
        for profile, choice in zip(menu.profiles, choices, strict=True)
    ]
    numbers = None
    if menu.own.enabled:
        numbers = _numbers(menu, availability, previous)
        options.append(
            Option(
                key=OWN,
                name="Own numbers",
                amount="",
                description="Say how much memory and how much of a card's time you need.",
                growth=_resizes(menu.smallest_own()),
                reason=reasons[OWN],
                selected=selected == OWN,
            )
        )
    notice = availability.problem or ("" if availability.cards else NO_CARDS)
    return Page(notice, tuple(_card_line(card) for card in availability.cards), tuple(options), numbers)


def _reason(choice: Choice, availability: Availability) -> str:
    if not choice.gpu:
        return ""
    if availability.problem:
        return "Cannot start while the GPU service is away."
    fit = availability.fits.get(choice.profile)
    if fit is None or not availability.cards:
        return "Cannot start: there is no GPU on this machine."
    return "" if fit.fits else (fit.reason or "Cannot start now: the cards are full.")


def _selected(reasons: Mapping[str, str], wanted: object) -> str | None:
    startable = [key for key, reason in reasons.items() if not reason]
    if isinstance(wanted, str) and wanted in startable:
        return wanted
    return startable[0] if startable else None


def _amount(choice: Choice, cards: Sequence[CardView]) -> str:
    if not choice.gpu:
        return ""
    if choice.memory is None:
        sizes = {card.total.memory for card in cards}
        one_size = choice.cores == CORES_PER_CARD and len(sizes) == 1
        return f"{format_memory(sizes.pop())} · 100 %" if one_size else choice.amount_text()
    if choice.cores is None:
        return format_memory(choice.memory)
    return f"{format_memory(choice.memory)} · {format_cores(choice.cores)}"


def _growth(choice: Choice) -> str:
    if not choice.gpu or choice.memory is None:
        return ""
    return " ".join(text for text in (_idle_time(choice), _resizes(choice)) if text)


def _idle_time(choice: Choice) -> str:
    if choice.compute != "elastic":
        return ""
    share = "Its share of compute" if choice.cores is None else format_cores(choice.cores)
    return f"{share} is guaranteed, and more while the card is idle."


def _resizes(choice: Choice) -> str:
    if choice.max_memory is None and choice.max_cores is None:
        return "Can grow up to the whole card while you work."
    memory = "all memory" if choice.max_memory is None else format_memory(choice.max_memory)
    cores = format_cores(choice.max_cores or CORES_PER_CARD)
    if choice.max_memory == choice.memory and choice.max_cores == choice.cores:
        return ""
    return f"Can grow up to {memory} and {cores} of the card while you work."


def _card_line(card: CardView) -> CardLine:
    held = len(card.slots)
    people = "nobody has a slice" if held == 0 else "1 slice in use" if held == 1 else f"{held} slices in use"
    return CardLine(
        title=f"Card {card.index}: {card.name}",
        bars=(
            Bar(
                "Memory",
                f"{format_memory(card.free.memory)} of {format_memory(card.total.memory)} free",
                _percent(card.total.memory - card.free.memory, card.total.memory),
            ),
            Bar(
                "Compute",
                f"{format_cores(card.free.cores)} free",
                _percent(card.total.cores - card.free.cores, card.total.cores),
            ),
        ),
        note=people if card.healthy else "This card reports a fault and takes no new slices.",
        healthy=card.healthy,
    )


def _percent(part: int, whole: int) -> int:
    return 0 if whole <= 0 else max(0, min(100, round(100 * part / whole)))


def _numbers(menu: Menu, availability: Availability, previous: Mapping[str, object]) -> NumberFields:
    own = menu.own
    usable = [card for card in availability.cards if card.healthy]
    free_memory = max((card.free.memory for card in usable), default=0)
    free_cores = max((card.free.cores for card in usable), default=0)
    largest = max((card.total.memory for card in availability.cards), default=0)
    most = min(x for x in (own.limit_memory, largest or None, 64 << 40) if x is not None)
    most_cores = own.limit_cores
    now = min(free_memory, most)
    roomiest = f"Free on one card now: {format_memory(now)}." if usable else ""
    return NumberFields(
        memory=_entered(previous, "memory_gib", _gib(min(own.memory, now) if now else own.memory)),
        memory_step=_gib(MEMORY_UNIT),
        memory_most=_gib(most),
        memory_hint=f"In steps of 0.25 GiB. {roomiest}".strip(),
        cores=_entered(previous, "cores", str(min(own.cores, free_cores) if free_cores else own.cores)),
        cores_most=str(most_cores),
        cores_hint=f"Percent of one card's time. Free on one card now: {format_cores(free_cores)}."
        if usable
        else "Percent of one card's time.",
        modes=_modes(own.compute, previous),
    )


def _modes(default: Mode, previous: Mapping[str, object]) -> tuple[ModeOption, ...]:
    chosen = _entered(previous, "compute", default)
    chosen = chosen if chosen in MODES else default
    return tuple(ModeOption(mode, *MODE_WORDS[mode], selected=mode == chosen) for mode in MODES)


def _entered(previous: Mapping[str, object], key: str, default: str) -> str:
    value = previous.get(key)
    if previous.get("profile") == OWN and isinstance(value, str) and len(value) <= 40:
        return value
    return default


def _gib(amount: int) -> str:
    whole, rest = divmod(amount, GIB)
    fraction = f"{rest * 10_000 // GIB:04d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)
