"""What a container of a pod asks for, in placement's terms; or why it cannot be had. Pure.

Amounts are the container's limits, the rest are annotations of the pod. The sentences of refusals reach
the people who made the pod as events and as the reason why its container does not start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube.pods import DOMAIN, Container, Pod, cores_resource, is_sidecar, memory_resource
from gaia_plugin.kube.quantities import NotWhole, whole_number
from gaia_plugin.placement import CardState, Request, cards_wanted, normalise
from gaia_plugin.shares import Share
from gaia_plugin.units import (
    CORES_PER_CARD,
    LARGEST_MEMORY,
    MEMORY_UNIT,
    format_cores,
    format_memory,
    parse_cores,
    parse_memory,
    units_up,
)

Compute = Literal["hard", "elastic"]

MOST_CARDS: Final = 16
"""Cards of one container; as many as fit into its pages."""

_LARGEST_UNITS: Final = LARGEST_MEMORY // MEMORY_UNIT
_USUAL_UNITS: Final = 96
"""Units of the card that serves for the example in a sentence where no card is known: 24 GiB."""

_MOST_MODELS: Final = 16
_LONGEST_MODEL: Final = 100


@dataclass(frozen=True, slots=True)
class Wish:
    """What a container asks for.

    Args:
        request: what placement is asked for.
        max_units, max_cores: how far its owner may grow it, over all cards; None: the pod does not say.
        compute: whether its cores are a ceiling (``hard``) or a floor (``elastic``).
    """

    request: Request
    max_units: int | None = None
    max_cores: int | None = None
    compute: Compute = "hard"


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of our resources and annotations in a domain."""

    domain: str = DOMAIN

    @property
    def memory(self) -> str:
        """Return the resource that counts units of 256 MiB."""
        return memory_resource(self.domain)

    @property
    def cores(self) -> str:
        """Return the resource that counts percent of one card's time."""
        return cores_resource(self.domain)

    @property
    def count(self) -> str:
        """Return the annotation that says over how many cards a request is split."""
        return f"{self.domain}/vgpu-count"

    @property
    def model(self) -> str:
        """Return the annotation that names card models that will do."""
        return f"{self.domain}/gpu-model"

    @property
    def max_memory(self) -> str:
        """Return the annotation that bounds memory in a resize."""
        return f"{self.domain}/vgpu-max-memory"

    @property
    def max_cores(self) -> str:
        """Return the annotation that bounds compute in a resize."""
        return f"{self.domain}/vgpu-max-cores"

    @property
    def compute(self) -> str:
        """Return the annotation that says what cores mean."""
        return f"{self.domain}/compute"


def wish_of(pod: Pod, container: str, *, domain: str = DOMAIN, card_units: int | None = None) -> Wish:
    """Return what a container of a pod asks for.

    `card_units` are the memory units of the largest card that could serve it, where that is known.

    Raises:
        Refusal: ``invalid_amount`` or ``bad_request``; the sentence says what to write instead.
    """
    keys = Keys(domain)
    asking = _asking(pod, container, keys)
    units, cores = _amount(asking, keys.memory), _amount(asking, keys.cores)
    if units is None and cores is None:
        raise _bad(container, f"it asks for neither {keys.memory} nor {keys.cores}.")
    _within_reason(container, keys, units, cores)
    count = _count(pod.annotations, keys)
    request = Request(units, cores, count or 1, _models(pod.annotations, keys))
    _check(container, keys, request, count, card_units)
    return Wish(request, *_maximum(pod.annotations, keys, request), _compute(pod.annotations, keys))


def _asking(pod: Pod, name: str, keys: Keys) -> Container:
    container = pod.container(name)
    if container is None:
        raise Refusal(Code.BAD_REQUEST, f"Pod {pod.title} has no container {name[:63]!r}.")
    plain = container in (pod.spec.init_containers or ()) and not is_sidecar(container)
    if plain and (keys.memory in container.limits or keys.cores in container.limits):
        raise _bad(
            name,
            "a plain init container cannot hold a slice of a GPU. Do that work in an app container, or make "
            f"it a sidecar (restartPolicy: Always); remove {keys.memory} and {keys.cores} from it otherwise.",
        )
    return container


def _amount(container: Container, resource: str) -> int | None:
    text, requested = container.limits.get(resource), container.requests.get(resource)
    if text is None and requested is None:
        return None
    if text is None:
        raise _bad(container.name, f"{resource} is set as a request only; set it under resources.limits.")
    try:
        number = whole_number(text)
        different = requested is not None and whole_number(requested) != number
    except NotWhole as fault:
        raise _invalid(container.name, f"{resource} is {_shown(text)}: {fault}. {_HINTS}") from fault
    if different:
        raise _bad(
            container.name,
            f"{resource} is {text} under limits and {_shown(requested or '')} under requests; "
            "they must be equal.",
        )
    return number


_HINTS: Final = "Write a whole number from 1 on."


def _within_reason(container: str, keys: Keys, units: int | None, cores: int | None) -> None:
    if units is not None and units > _LARGEST_UNITS:
        raise _invalid(
            container,
            f"{keys.memory} is {units}: no card is that large. It counts units of "
            f"{format_memory(MEMORY_UNIT)}, so 8 GiB is 32; the most is {_LARGEST_UNITS}.",
        )
    if cores is not None and cores > MOST_CARDS * CORES_PER_CARD:
        raise _invalid(
            container,
            f"{keys.cores} is {cores}: it counts percent of one card, so {MOST_CARDS} whole cards, the most "
            f"a container can have, are {MOST_CARDS * CORES_PER_CARD}.",
        )


def _check(
    container: str, keys: Keys, request: Request, said_count: int | None, card_units: int | None
) -> None:
    """Refuse what means nothing, or could not be had of an idle card of that size."""
    nominal = Share(card_units or _USUAL_UNITS, CORES_PER_CARD)
    card = CardState("", "", nominal, nominal)
    try:
        share = normalise(request, card)
    except Refusal as refusal:
        hint = ""
        if request.memory_units is None and request.cores is not None and request.cores < CORES_PER_CARD:
            hint = f" Memory is the limit {keys.memory}, in units of {format_memory(MEMORY_UNIT)}."
        raise Refusal(refusal.code, f"Container {container[:63]}: {refusal.sentence}{hint}") from refusal
    wanted = cards_wanted(request)
    if said_count == 1 and wanted > 1:
        raise _invalid(
            container,
            f"{keys.cores} of {request.cores} are {wanted} whole cards, and {keys.count} says 1. "
            f"Remove the annotation or set it to {wanted}.",
        )
    if card_units is not None and share.units > card_units:
        raise _invalid(container, _above_one_card(keys, request, share, card_units, wanted))


def _above_one_card(keys: Keys, request: Request, share: Share, card_units: int, wanted: int) -> str:
    units = request.memory_units or 0
    needed = -(-units // card_units)
    each = f"{share.units} units ({format_memory(share.units * MEMORY_UNIT)})"
    most = f"ask for at most {card_units * wanted} units ({format_memory(card_units * wanted * MEMORY_UNIT)})"
    spread = f', or spread it over {needed} cards with the annotation {keys.count}: "{needed}"'
    return (
        f"{keys.memory} comes to {each} on one card, and the largest card has "
        f"{format_memory(card_units * MEMORY_UNIT)}: {most}{spread if needed <= MOST_CARDS else ''}."
    )


def _count(annotations: Mapping[str, str], keys: Keys) -> int | None:
    text = annotations.get(keys.count)
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,3}", text) is None or not 1 <= int(text) <= MOST_CARDS:
        raise Refusal(
            Code.INVALID_AMOUNT,
            f"Annotation {keys.count} is {_shown(text)}: write how many cards to split the request over, "
            f"from 1 to {MOST_CARDS}.",
        )
    return int(text)


def _models(annotations: Mapping[str, str], keys: Keys) -> frozenset[str]:
    text = annotations.get(keys.model)
    if text is None:
        return frozenset()
    names = [name.strip() for name in text.split(",")]
    sound = all(len(name) <= _LONGEST_MODEL and re.search(r"[A-Za-z0-9]", name) for name in names)
    if not sound or len(names) > _MOST_MODELS:
        raise Refusal(
            Code.BAD_REQUEST,
            f"Annotation {keys.model} is {_shown(text)}: write one or several card models, separated by "
            "commas, such as A100,L40S.",
        )
    return frozenset(names)


def _compute(annotations: Mapping[str, str], keys: Keys) -> Compute:
    match annotations.get(keys.compute, "hard"):
        case "hard":
            return "hard"
        case "elastic":
            return "elastic"
        case other:
            raise Refusal(
                Code.BAD_REQUEST,
                f"Annotation {keys.compute} is {_shown(other)}: write hard (cores are a ceiling) or elastic "
                "(cores are guaranteed, and more is had while the card is idle).",
            )


def _maximum(annotations: Mapping[str, str], keys: Keys, request: Request) -> tuple[int | None, int | None]:
    memory, cores = annotations.get(keys.max_memory), annotations.get(keys.max_cores)
    units = None if memory is None else _maximum_units(memory, keys)
    percent = None if cores is None else _maximum_cores(cores, keys)
    if units is not None and request.memory_units is not None and request.memory_units > units:
        raise _below_request(
            keys.max_memory,
            format_memory(units * MEMORY_UNIT),
            format_memory(request.memory_units * MEMORY_UNIT),
        )
    if percent is not None and request.cores is not None and request.cores > percent:
        raise _below_request(keys.max_cores, format_cores(percent), format_cores(request.cores))
    return units, percent


def _maximum_units(text: str, keys: Keys) -> int:
    """Return the units of a maximum: digits are units, as in the resource; else an amount such as 16Gi."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        if 1 <= int(text) <= _LARGEST_UNITS:
            return int(text)
        raise Refusal(
            Code.INVALID_AMOUNT,
            f"Annotation {keys.max_memory} is {_shown(text)}: write units of {format_memory(MEMORY_UNIT)} "
            f"from 1 to {_LARGEST_UNITS}, or an amount such as 16Gi.",
        )
    try:
        return units_up(parse_memory(text))
    except Refusal as refusal:
        raise Refusal(refusal.code, f"Annotation {keys.max_memory}: {refusal.sentence}") from refusal


def _maximum_cores(text: str, keys: Keys) -> int:
    try:
        return parse_cores(text)
    except Refusal as refusal:
        raise Refusal(refusal.code, f"Annotation {keys.max_cores}: {refusal.sentence}") from refusal


def _below_request(key: str, most: str, asked: str) -> Refusal:
    return Refusal(
        Code.INVALID_AMOUNT,
        f"Annotation {key} is {most}, less than the {asked} that the container asks for at once: "
        f"set it to {asked} or more, or remove it.",
    )


def _invalid(container: str, sentence: str) -> Refusal:
    return Refusal(Code.INVALID_AMOUNT, f"Container {container[:63]}: {sentence}")


def _bad(container: str, sentence: str) -> Refusal:
    return Refusal(Code.BAD_REQUEST, f"Container {container[:63]}: {sentence}")


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:37] + "...")
