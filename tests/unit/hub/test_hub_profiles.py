"""Every option a user may send, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_hub.profiles import (
    DEFAULT_PROFILES,
    Choice,
    Menu,
    options_from_form,
    options_from_query,
    read_menu,
)
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB, MIB

MENU = read_menu(DEFAULT_PROFILES, {"limit_memory": "12GiB", "limit_cores": 50})
HUGE = 10**30

GOOD = [
    ("nothing", {}, "small", 4 * GIB, 25),
    ("small", {"profile": "small"}, "small", 4 * GIB, 25),
    ("medium", {"profile": "medium"}, "medium", 8 * GIB, 50),
    ("card", {"profile": "card"}, "card", None, 100),
    ("none", {"profile": "none"}, "none", None, None),
    ("own", {"profile": "own", "memory": "8GiB", "cores": 25}, "own", 8 * GIB, 25),
    ("own, digits", {"profile": "own", "memory": "1.5 GiB", "cores": "25"}, "own", 3 * GIB // 2, 25),
    ("own, bytes", {"profile": "own", "memory": 8 * GIB, "cores": 25}, "own", 8 * GIB, 25),
    ("own without saying so", {"memory": "8GiB", "cores": 25}, "own", 8 * GIB, 25),
    ("own, memory alone", {"profile": "own", "memory": "8GiB"}, "own", 8 * GIB, None),
    ("own, null cores", {"profile": "own", "memory": "8GiB", "cores": None}, "own", 8 * GIB, None),
]


@pytest.mark.parametrize(
    ("options", "key", "memory", "cores"), [c[1:] for c in GOOD], ids=[c[0] for c in GOOD]
)
def test_good_options_are_taken(
    options: Mapping[str, object], key: str, memory: int | None, cores: int | None
) -> None:
    choice = MENU.choose(options)
    assert (choice.profile, choice.memory, choice.cores) == (key, memory, cores)
    assert MENU.choose(json.loads(json.dumps(choice.options()))) == choice


BAD = [
    ("list", [], Code.BAD_REQUEST, "must be an object"),
    ("text", "small", Code.BAD_REQUEST, "must be an object"),
    (
        "unknown key",
        {"image": "x"},
        Code.BAD_REQUEST,
        "'image' is not an option; use profile, memory, cores, compute.",
    ),
    (
        "unknown profile",
        {"profile": "huge"},
        Code.NO_SUCH_PROFILE,
        "choose one of small, medium, card, none, own.",
    ),
    ("profile with a newline", {"profile": "small\n"}, Code.NO_SUCH_PROFILE, r"'small\n'"),
    ("profile list", {"profile": ["small"]}, Code.NO_SUCH_PROFILE, "['small']"),
    ("profile dict", {"profile": {"a": 1}}, Code.NO_SUCH_PROFILE, "{'a': 1}"),
    ("profile null", {"profile": None}, Code.NO_SUCH_PROFILE, "None"),
    ("profile number", {"profile": 1}, Code.NO_SUCH_PROFILE, "profile 1;"),
    ("long profile", {"profile": "x" * 9999}, Code.NO_SUCH_PROFILE, "..."),
    (
        "fixed profile with numbers",
        {"profile": "small", "memory": "1GiB"},
        Code.BAD_REQUEST,
        "is fixed, so memory",
    ),
    ("fixed profile with a mode", {"profile": "small", "compute": "hard"}, Code.BAD_REQUEST, "so compute"),
    ("mode unknown", {"memory": "1GiB", "compute": "turbo"}, Code.BAD_REQUEST, "choose hard or elastic"),
    ("mode in capitals", {"memory": "1GiB", "compute": "Hard"}, Code.BAD_REQUEST, "'Hard' is no mode"),
    ("mode newline", {"memory": "1GiB", "compute": "hard\n"}, Code.BAD_REQUEST, r"'hard\n' is no mode"),
    ("mode empty", {"memory": "1GiB", "compute": ""}, Code.BAD_REQUEST, "'' is no mode"),
    ("mode list", {"memory": "1GiB", "compute": ["hard"]}, Code.BAD_REQUEST, "['hard'] is no mode"),
    ("mode number", {"memory": "1GiB", "compute": 1}, Code.BAD_REQUEST, "1 is no mode"),
    ("own without memory", {"profile": "own"}, Code.INVALID_AMOUNT, "Say how much memory"),
    ("own, cores alone", {"profile": "own", "cores": 25}, Code.INVALID_AMOUNT, "Say how much memory"),
    ("memory 0", {"memory": 0, "cores": 1}, Code.INVALID_AMOUNT, "more than zero"),
    ("memory 0GiB", {"memory": "0GiB", "cores": 1}, Code.INVALID_AMOUNT, "more than zero"),
    ("memory negative", {"memory": "-1GiB", "cores": 1}, Code.INVALID_AMOUNT, "such as 8GiB"),
    ("memory negative bytes", {"memory": -1, "cores": 1}, Code.INVALID_AMOUNT, "more than zero"),
    ("memory 8 newline", {"memory": "8\n", "cores": 1}, Code.INVALID_AMOUNT, r"'8\n'"),
    ("memory 8GiB newline", {"memory": "8GiB\n", "cores": 1}, Code.INVALID_AMOUNT, r"'8GiB\n'"),
    ("memory without unit", {"memory": "8", "cores": 1}, Code.INVALID_AMOUNT, "a number and a unit"),
    ("memory unknown unit", {"memory": "8XB", "cores": 1}, Code.INVALID_AMOUNT, "the unit is unknown"),
    ("memory list", {"memory": ["8GiB"], "cores": 1}, Code.INVALID_AMOUNT, "['8GiB']"),
    ("memory NaN", {"memory": float("nan"), "cores": 1}, Code.INVALID_AMOUNT, "nan"),
    ("memory infinite", {"memory": float("inf"), "cores": 1}, Code.INVALID_AMOUNT, "inf"),
    ("memory float", {"memory": 8.0, "cores": 1}, Code.INVALID_AMOUNT, "8.0"),
    ("memory true", {"memory": True, "cores": 1}, Code.INVALID_AMOUNT, "True"),
    ("memory huge", {"memory": HUGE, "cores": 1}, Code.INVALID_AMOUNT, "no card is that large"),
    (
        "memory huge text",
        {"memory": "9" * 18 + "TiB", "cores": 1},
        Code.INVALID_AMOUNT,
        "no card is that large",
    ),
    ("memory other digits", {"memory": "８GiB", "cores": 1}, Code.INVALID_AMOUNT, "such as 8GiB"),
    (
        "memory over the limit",
        {"memory": "12.25GiB", "cores": 1},
        Code.OVER_MAXIMUM,
        "up to 12 GiB is possible",
    ),
    ("cores 0", {"memory": "1GiB", "cores": 0}, Code.INVALID_AMOUNT, "whole number of percent"),
    ("cores negative", {"memory": "1GiB", "cores": -1}, Code.INVALID_AMOUNT, "whole number of percent"),
    ("cores newline", {"memory": "1GiB", "cores": "25\n"}, Code.INVALID_AMOUNT, r"'25\n'"),
    ("cores float", {"memory": "1GiB", "cores": 25.5}, Code.INVALID_AMOUNT, "25.5"),
    ("cores NaN", {"memory": "1GiB", "cores": float("nan")}, Code.INVALID_AMOUNT, "nan"),
    ("cores list", {"memory": "1GiB", "cores": [25]}, Code.INVALID_AMOUNT, "[25]"),
    ("cores true", {"memory": "1GiB", "cores": True}, Code.INVALID_AMOUNT, "True"),
    ("cores huge", {"memory": "1GiB", "cores": HUGE}, Code.INVALID_AMOUNT, "whole number of percent"),
    ("cores over the limit", {"memory": "1GiB", "cores": 51}, Code.OVER_MAXIMUM, "up to 50 % is possible"),
]


@pytest.mark.parametrize(("options", "code", "words"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_bad_options_are_refused_with_a_sentence(options: object, code: Code, words: str) -> None:
    with pytest.raises(Refusal) as refusal:
        MENU.choose(options)
    assert refusal.value.code is code
    assert words in refusal.value.sentence
    assert len(refusal.value.sentence) < 300
    assert "\n" not in refusal.value.sentence


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["profile", "memory", "cores", "compute"]) | st.text(), json_values)
    | json_values
)
def test_any_json_gives_a_choice_or_a_refusal(options: object) -> None:
    try:
        choice = MENU.choose(options)
    except Refusal:
        return
    assert isinstance(choice, Choice)
    assert choice.profile in MENU.keys


FORMS = [
    ({"profile": ["small"], "memory_gib": ["x"], "cores": ["y"]}, {"profile": "small"}),
    (
        {"profile": ["own"], "memory_gib": ["7.5"], "cores": ["30"]},
        {"profile": "own", "memory": "7.5GiB", "cores": "30"},
    ),
    (
        {"profile": ["own"], "memory_gib": ["7.5"], "cores": ["30"], "compute": ["elastic"]},
        {"profile": "own", "memory": "7.5GiB", "cores": "30", "compute": "elastic"},
    ),
    ({"profile": ["small"], "compute": ["elastic"]}, {"profile": "small"}),
    ({"profile": ["none"], "_xsrf": ["a", "b"]}, {"profile": "none"}),
]


@pytest.mark.parametrize(("form", "options"), FORMS)
def test_a_form_becomes_options(form: dict[str, list[object]], options: dict[str, object]) -> None:
    assert options_from_form(form) == options


BAD_FORMS = [
    ({}, "Choose one"),
    ({"profile": ["small", "medium"]}, "'profile' must be given once, not 2 times."),
    ({"profile": []}, "must be given once"),
    ({"profile": ["own"], "cores": ["5"]}, "'' is not a number of GiB"),
    ({"profile": ["own"], "memory_gib": ["8\n"], "cores": ["5"]}, r"'8\n' is not a number of GiB"),
    ({"profile": ["own"], "memory_gib": ["-8"], "cores": ["5"]}, "not a number of GiB"),
    ({"profile": ["own"], "memory_gib": ["nan"], "cores": ["5"]}, "not a number of GiB"),
    ({"profile": ["own"], "memory_gib": ["1e3"], "cores": ["5"]}, "not a number of GiB"),
    ({"profile": ["own"], "memory_gib": ["8", "9"], "cores": ["5"]}, "not 2 times"),
    ({"profile": ["small"], "image": ["x"]}, "'image' is not a field"),
    ({"profile_file": [{"filename": "x", "body": b""}]}, "'profile_file' is not a field"),
]


@pytest.mark.parametrize(("form", "words"), BAD_FORMS)
def test_a_bad_form_is_refused(form: dict[str, list[object]], words: str) -> None:
    with pytest.raises(Refusal) as refusal:
        options_from_form(form)
    assert words in refusal.value.sentence


def test_an_upload_in_place_of_the_profile_is_refused() -> None:
    with pytest.raises(Refusal):
        MENU.choose(options_from_form({"profile": [{"filename": "x", "body": b"small"}]}))


def test_a_query_parameter_given_twice_is_refused() -> None:
    assert options_from_query({"profile": ["small"]}) == {"profile": "small"}
    with pytest.raises(Refusal, match="not 2 times"):
        options_from_query({"profile": ["small", "card"]})


def test_a_choice_becomes_the_request_for_a_slot() -> None:
    menu = read_menu([{"key": "a", "name": "A", "memory": "2GiB", "cores": 10, "max_memory": "4GiB"}], {})
    wish = menu.choose({}).new_slot("ann", "lab")
    assert (wish.owner, wish.name, wish.memory, wish.cores) == ("ann", "lab", 2 * GIB, 10)
    assert (wish.max_memory, wish.max_cores, wish.process) == (4 * GIB, None, None)
    whole = MENU.choice("card").new_slot("ann", "")
    assert (whole.memory, whole.cores) == (None, 100)


@pytest.mark.parametrize("configured", ["hard", "elastic"])
def test_own_numbers_are_as_configured_unless_chosen_and_remembered(configured: str) -> None:
    menu = read_menu(DEFAULT_PROFILES, {"compute": configured})
    own = {"profile": "own", "memory": "2GiB", "cores": 10}
    assert menu.choose(own).compute == configured
    for mode in ("hard", "elastic"):
        choice = menu.choose({**own, "compute": mode})
        assert choice.new_slot("ann", "").compute == mode
        again = read_menu(DEFAULT_PROFILES, {}).choose(json.loads(json.dumps(choice.options())))
        assert again.compute == mode


def test_own_memory_is_stored_in_whole_units() -> None:
    assert MENU.choose({"memory": 257 * MIB, "cores": 1}).options()["memory"] == "512MiB"


WRONG_CONFIG = [
    ([], {}, "profiles: at least one"),
    ([{"name": "A"}], {}, "profiles[0].key: Field required"),
    ([{"key": "a", "name": "A", "memory": "8XB"}], {}, "profiles[0].memory: '8XB' is not"),
    ([{"key": "a", "name": "A", "memory": 0}], {}, "profiles[0].memory: 0 is not"),
    ([{"key": "a", "name": "A", "cores": "1\n"}], {}, "profiles[0].cores:"),
    ([{"key": "a", "name": "A", "cores": 25}], {}, "profiles[0]: give memory"),
    ([{"key": "a", "name": "A"}], {}, "profiles[0]: give memory"),
    (
        [{"key": "a", "name": "A", "memory": "2GiB", "max_memory": "1GiB"}],
        {},
        "profiles[0]: memory is more than",
    ),
    ([{"key": "a", "name": "A", "gpu": False, "cores": 1}], {}, "profiles[0]: a profile with gpu false"),
    ([{"key": "a", "name": "A", "gpu": "no"}], {}, "profiles[0].gpu:"),
    ([{"key": "own", "name": "A", "gpu": False}], {}, "profiles[0]: the key 'own'"),
    ([{"key": "A b", "name": "A", "gpu": False}], {}, "profiles[0].key:"),
    ([{"key": "a\n", "name": "A", "gpu": False}], {}, "profiles[0].key:"),
    ([{"key": "a", "name": "A", "gpu": False, "imgae": 1}], {}, "profiles[0].imgae: Extra"),
    ([{"key": "a", "name": "A", "gpu": False}] * 2, {}, "the key 'a' appears twice"),
    (["small"], {}, "profiles[0]:"),
    ([{"key": "a", "name": "A", "gpu": False}], {"limit_cores": 0}, "own_numbers.limit_cores:"),
    (
        [{"key": "a", "name": "A", "gpu": False}],
        {"limit_memory": "1MiB"},
        "own_numbers: limit_memory is less",
    ),
    (
        [{"key": "a", "name": "A", "gpu": False}],
        {"memory": "8GiB", "limit_memory": "4GiB"},
        "own_numbers: memory is",
    ),
    ([{"key": "a", "name": "A", "gpu": False}], {"compute": "turbo"}, "own_numbers.compute: Input"),
    ([{"key": "a", "name": "A", "gpu": False}], {"most": 1}, "own_numbers.most: Extra"),
]


@pytest.mark.parametrize(("profiles", "own", "words"), WRONG_CONFIG)
def test_a_mistake_in_the_configuration_names_its_key(
    profiles: list[object], own: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=": ") as mistake:
        read_menu(profiles, own)
    assert words in str(mistake.value)


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(ValueError, match=": ") as mistake:
        read_menu([{"key": "a"}, {"name": "B", "gpu": False}], {"limit_cores": 0})
    assert len(str(mistake.value).splitlines()) == 3


def test_without_own_numbers_there_is_no_such_profile() -> None:
    menu: Menu = read_menu(DEFAULT_PROFILES, {"enabled": False})
    assert menu.keys == ("small", "medium", "card", "none")
    with pytest.raises(Refusal) as refusal:
        menu.choose({"memory": "1GiB", "cores": 1})
    assert refusal.value.code is Code.NO_SUCH_PROFILE
