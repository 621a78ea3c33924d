"""Profiles: what may be chosen on the spawn page, and whether a choice is acceptable.

Pure: values in, values out. The operator's list becomes `Profile` models, in which a mistake is
reported with the key it belongs to; what a user sends, by form, query or REST, becomes a `Choice`
or a `Refusal` with a sentence. Nothing here knows of JupyterHub or of what is free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gaia_plugin.api.models import NewSlot
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import (
    CORES_PER_CARD,
    GIB,
    MEMORY_UNIT,
    MIB,
    format_cores,
    format_memory,
    parse_cores,
    parse_memory,
    units_up,
)

OWN: Final = "own"
"""The key of "own numbers"; no profile may have it."""

OPTION_KEYS: Final = ("profile", "memory", "cores", "compute")
"""Every key that user options may have."""

Mode = Literal["hard", "elastic"]
MODES: Final[tuple[Mode, ...]] = ("hard", "elastic")

_PLAIN_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def _as_value_error(parse: Callable[[object], int]) -> Callable[[object], int | None]:
    """Let pydantic collect what `parse` refuses; None stays None."""

    def validator(value: object) -> int | None:
        if value is None:
            return None
        try:
            return parse(value)
        except Refusal as refusal:
            raise ValueError(refusal.sentence) from refusal

    return validator


Memory = Annotated[int | None, BeforeValidator(_as_value_error(parse_memory))]
Cores = Annotated[int | None, BeforeValidator(_as_value_error(parse_cores))]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Profile(_Model):
    """One entry of the spawn page.

    Memory is bytes (written as text with a unit in configuration), cores percent of one card.
    Cores of 100 without memory mean a whole card; `gpu` false means no slice at all.
    `max_memory` and `max_cores` are how far the owner may resize; None means the whole card.
    `compute` "hard" holds cores as a ceiling; "elastic" guarantees them and gives more, up to
    `max_cores`, while the card is idle.
    `expandable_segments` lets PyTorch give memory back on a shrink; vLLM's sleep mode and CUDA
    tensors shared between processes do not work with it, so it is off by default.
    """

    key: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    name: str = Field(min_length=1, max_length=80)
    description: str = Field(default="", max_length=400)
    gpu: bool = True
    memory: Memory = None
    cores: Cores = None
    max_memory: Memory = None
    max_cores: Cores = None
    compute: Mode = "hard"
    models: Annotated[tuple[str, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)] = ()
    expandable_segments: bool = False

    @model_validator(mode="after")
    def _coherent(self) -> Profile:
        if self.key == OWN:
            raise ValueError(f"the key {OWN!r} is kept for own numbers; choose another")
        amounts = (self.memory, self.cores, self.max_memory, self.max_cores)
        if not self.gpu:
            if any(amount is not None for amount in amounts):
                raise ValueError("a profile with gpu false has no memory and no cores")
            return self
        if self.memory is None and (self.cores is None or self.cores % CORES_PER_CARD):
            raise ValueError("give memory (such as 8GiB), or cores of 100 for a whole card")
        _within("memory", self.memory, self.max_memory)
        _within("cores", self.cores, self.max_cores)
        return self


class OwnNumbers(_Model):
    """What "own numbers" on the spawn page allows.

    `memory` and `cores` are what the fields hold at first, `limit_memory` and `limit_cores` the
    most that may be asked for (None: whatever a card has), `max_memory` and `max_cores` how far
    the owner may resize afterwards (None: the whole card). `compute` is the mode that is chosen at
    first.
    """

    enabled: bool = True
    memory: Annotated[int, BeforeValidator(_as_value_error(parse_memory))] = 4 * GIB
    cores: Annotated[int, BeforeValidator(_as_value_error(parse_cores))] = 25
    limit_memory: Memory = None
    limit_cores: Annotated[int, BeforeValidator(_as_value_error(parse_cores))] = CORES_PER_CARD
    max_memory: Memory = None
    max_cores: Cores = None
    compute: Mode = "hard"

    @model_validator(mode="after")
    def _coherent(self) -> OwnNumbers:
        if self.limit_memory is not None and self.limit_memory < MEMORY_UNIT:
            raise ValueError(f"limit_memory is less than {format_memory(MEMORY_UNIT)}, the smallest slice")
        _within("memory", self.memory, self.limit_memory, "limit_memory")
        _within("cores", self.cores, self.limit_cores, "limit_cores")
        _within("limit_memory", self.limit_memory, self.max_memory)
        _within("limit_cores", self.limit_cores, self.max_cores)
        return self


def _within(key: str, amount: int | None, most: int | None, most_key: str = "") -> None:
    if amount is not None and most is not None and amount > most:
        raise ValueError(f"{key} is more than {most_key or 'max_' + key.removeprefix('limit_')}")


DEFAULT_PROFILES: Final[tuple[dict[str, object], ...]] = (
    {"key": "small", "name": "Small slice", "memory": "4GiB", "cores": 25,
     "description": "For trying things out, small models and teaching."},
    {"key": "medium", "name": "Medium slice", "memory": "8GiB", "cores": 50,
     "description": "For training and inference of middle-sized models."},
    {"key": "card", "name": "Whole card", "cores": 100,
     "description": "A card of your own, shared with nobody."},
    {"key": "none", "name": "No GPU", "gpu": False,
     "description": "Processor only. Starts always, and leaves the cards to others."},
)  # fmt: skip
"""What the spawn page offers when the operator configures nothing."""


@dataclass(frozen=True)
class Choice:
    """An accepted choice: what to ask the node for. Bytes and cores; None: the node derives it."""

    profile: str
    name: str
    gpu: bool
    memory: int | None = None
    cores: int | None = None
    max_memory: int | None = None
    max_cores: int | None = None
    compute: Mode = "hard"
    models: tuple[str, ...] = ()
    expandable_segments: bool = False

    def options(self) -> dict[str, str | int]:
        """Return the user options that lead to this choice again; safe to store as JSON."""
        if self.profile != OWN:
            return {"profile": self.profile}
        chosen: dict[str, str | int] = {"profile": OWN, "compute": self.compute}
        if self.memory is not None:
            chosen["memory"] = f"{units_up(self.memory) * MEMORY_UNIT // MIB}MiB"
        if self.cores is not None:
            chosen["cores"] = self.cores
        return chosen

    def new_slot(self, owner: str, server: str) -> NewSlot:
        """Return the request for this slice on behalf of a user's server."""
        return NewSlot(
            owner=owner,
            name=server,
            memory=self.memory,
            cores=self.cores,
            max_memory=self.max_memory,
            max_cores=self.max_cores,
            compute=self.compute,
            models=self.models,
        )

    def amount_text(self) -> str:
        """Write the amount for people: ``4 GiB and 25 % of a card``."""
        if not self.gpu:
            return "no GPU"
        if self.memory is None:
            cards = (self.cores or CORES_PER_CARD) // CORES_PER_CARD
            return "a whole card" if cards == 1 else f"{cards} whole cards"
        if self.cores is None:
            return format_memory(self.memory)
        return f"{format_memory(self.memory)} and {format_cores(self.cores)} of a card"


@dataclass(frozen=True)
class Menu:
    """Everything the spawn page offers: the profiles in order, then own numbers if enabled."""

    profiles: tuple[Profile, ...]
    own: OwnNumbers

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that may be chosen, in the order of the page."""
        return (*(profile.key for profile in self.profiles), *((OWN,) if self.own.enabled else ()))

    def choice(self, key: str) -> Choice:
        """Return the choice of a fixed profile.

        Raises:
            Refusal: code ``no_such_profile``.
        """
        for profile in self.profiles:
            if profile.key == key:
                fields = profile.model_dump(exclude={"key", "description"})
                return Choice(profile=profile.key, **fields)
        raise _no_such_profile(key, self)

    def choose(self, options: object) -> Choice:
        """Return the choice that user options name; an empty dict is the first profile.

        `options` is what a form, a query or the REST body led to: a dict with ``profile`` and, for
        own numbers, ``memory`` (text with a unit, or bytes), ``cores`` and ``compute`` ("hard" or
        "elastic"; left out: as configured).

        Raises:
            Refusal: for anything else, with a sentence that says what would be right.
        """
        if not isinstance(options, Mapping):
            raise _bad(f"The options must be an object with the keys {', '.join(OPTION_KEYS)}.")
        unknown = [key for key in options if key not in OPTION_KEYS]
        if unknown:
            raise _bad(f"{shown(unknown[0])} is not an option; use {', '.join(OPTION_KEYS)}.")
        given = {key for key in ("memory", "cores", "compute") if options.get(key) is not None}
        default = OWN if given else self.keys[0]
        key = options.get("profile", default)
        if not isinstance(key, str) or key not in self.keys:
            raise _no_such_profile(key, self)
        if key == OWN:
            return self._own(options.get("memory"), options.get("cores"), options.get("compute"))
        if given:
            numbers = " or ".join(sorted(given))
            raise _bad(
                f"The profile {key!r} is fixed, so {numbers} cannot be set with it; "
                f"leave that out" + (f", or choose the profile {OWN!r}." if self.own.enabled else ".")
            )
        return self.choice(key)

    def _own(self, memory: object, cores: object, compute: object = None) -> Choice:
        own = self.own
        mode = own.compute if compute is None else _mode(compute)
        size = None if memory is None else parse_memory(memory)
        share = None if cores is None else parse_cores(cores)
        if size is None and (share is None or share % CORES_PER_CARD):
            raise Refusal(
                Code.INVALID_AMOUNT, "Say how much memory you want with your own numbers, such as 4GiB."
            )
        if own.limit_memory is not None and size is not None and size > own.limit_memory:
            most = format_memory(own.limit_memory)
            raise Refusal(
                Code.OVER_MAXIMUM,
                f"{format_memory(size)} is more than you may ask for here; up to {most} is possible.",
                best_memory=own.limit_memory,
            )
        if share is not None and share > own.limit_cores:
            raise Refusal(
                Code.OVER_MAXIMUM,
                f"{format_cores(share)} is more than you may ask for here; "
                f"up to {format_cores(own.limit_cores)} is possible.",
                best_cores=own.limit_cores,
            )
        return Choice(
            profile=OWN,
            name="Own numbers",
            gpu=True,
            memory=size,
            cores=share,
            max_memory=own.max_memory,
            max_cores=own.max_cores,
            compute=mode,
        )

    def smallest_own(self) -> Choice:
        """Return the smallest slice that own numbers can ask for."""
        return self._own(MEMORY_UNIT, 1)


def read_menu(profiles: Sequence[object], own: Mapping[str, object]) -> Menu:
    """Return the validated menu from the operator's configuration.

    Raises:
        ValueError: one line per mistake, each beginning with the key it belongs to.
    """
    if not profiles:
        raise ValueError("profiles: at least one profile is needed")
    mistakes: list[str] = []
    read: list[Profile] = []
    for position, entry in enumerate(profiles):
        try:
            read.append(Profile.model_validate(entry))
        except ValidationError as error:
            mistakes += _mistakes(f"profiles[{position}]", error)
    seen: set[str] = set()
    for profile in read:
        if profile.key in seen:
            mistakes.append(f"profiles: the key {profile.key!r} appears twice")
        seen.add(profile.key)
    try:
        numbers = OwnNumbers.model_validate(dict(own))
    except ValidationError as error:
        mistakes += _mistakes("own_numbers", error)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return Menu(tuple(read), numbers)


def _mistakes(where: str, error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors(include_url=False):
        path = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in item["loc"])
        lines.append(f"{where}{path}: {item['msg'].removeprefix('Value error, ')}")
    return lines


def _mode(value: object) -> Mode:
    for mode in MODES:
        if value == mode and isinstance(value, str):
            return mode
    raise _bad(f"{shown(value)} is no mode of compute; choose {' or '.join(MODES)}.")


def options_from_form(form: Mapping[str, Sequence[object]]) -> dict[str, object]:
    """Return user options from the fields of the spawn page, each a list of texts.

    The number fields and the mode belong to own numbers and are sent with every profile, so they count
    only there. Their memory is a plain number of GiB.

    Raises:
        Refusal: code ``bad_request`` for a field that is unknown, missing or there twice.
    """
    fields = _single({key: values for key, values in form.items() if key != "_xsrf"})
    unknown = [key for key in fields if key not in ("profile", "memory_gib", "cores", "compute")]
    if unknown:
        raise _bad(f"{shown(unknown[0])} is not a field of this form.")
    if "profile" not in fields:
        raise _bad("Choose one of the options.")
    if fields["profile"] != OWN:
        return {"profile": fields["profile"]}
    memory = fields.get("memory_gib", "")
    if not isinstance(memory, str) or _PLAIN_NUMBER.fullmatch(memory) is None:
        raise Refusal(
            Code.INVALID_AMOUNT,
            f"{shown(memory)} is not a number of GiB; write memory as a plain number, such as 4 or 7.5.",
        )
    mode = {"compute": fields["compute"]} if "compute" in fields else {}
    return {"profile": OWN, "memory": f"{memory}GiB", "cores": fields.get("cores", ""), **mode}


def options_from_query(query: Mapping[str, Sequence[object]]) -> dict[str, object]:
    """Return user options from the parameters of ``/hub/spawn?...``, each a list of texts.

    JupyterHub 6 takes the prefix ``opt-`` off itself; 5.x does not know it.

    Raises:
        Refusal: code ``bad_request`` for a parameter that is there twice.
    """
    given = [(key.removeprefix("opt-"), values) for key, values in query.items() if key != "_xsrf"]
    together: dict[str, list[object]] = {}
    for key, values in given:
        together.setdefault(key, []).extend(values)
    return _single(together)


def _single(fields: Mapping[str, Sequence[object]]) -> dict[str, object]:
    single: dict[str, object] = {}
    for key, values in fields.items():
        if isinstance(values, str) or len(values) != 1:
            raise _bad(f"{shown(key)} must be given once, not {len(values)} times.")
        single[key] = values[0]
    return single


def shown(value: object) -> str:
    """Write somebody else's value for a sentence: quoted, on one line, never longer than 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _no_such_profile(key: object, menu: Menu) -> Refusal:
    return Refusal(
        Code.NO_SUCH_PROFILE, f"There is no profile {shown(key)}; choose one of {', '.join(menu.keys)}."
    )


def _bad(sentence: str) -> Refusal:
    return Refusal(Code.BAD_REQUEST, sentence)
