"""Amounts as people write them, and as Gaia writes them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.errors import HTTP_STATUS, Code, Refusal
from gaia_plugin.units import (
    GIB,
    MEMORY_UNIT,
    MIB,
    format_cores,
    format_memory,
    parse_cores,
    parse_memory,
    units_down,
    units_up,
)


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("8GiB", 8 * GIB),
        ("8Gi", 8 * GIB),
        ("8 GiB", 8 * GIB),
        ("8gib", 8 * GIB),
        ("1.5GiB", 3 * GIB // 2),
        ("0.25 GiB", 256 * MIB),
        ("512MiB", 512 * MIB),
        ("1GB", 10**9),
        ("1.1GiB", -(-11 * GIB // 10)),
        ("1024Mi", GIB),
        (8 * GIB, 8 * GIB),
    ],
)
def test_memory_that_can_be_read(written: object, amount: int) -> None:
    assert parse_memory(written) == amount


@pytest.mark.parametrize(
    "written",
    [
        "",
        "0",
        "0GiB",
        "-1GiB",
        "8",
        "8\n",
        "8GiB\n",
        "\n8GiB",
        "8 parsecs",
        "8PiB",
        "NaN",
        "nan GiB",
        "infGiB",
        "1e3GiB",
        "8,5GiB",
        "99999999TiB",
        "1" * 400 + "GiB",
        "٨GiB",
        "8\u00a0GiB",
        0,
        -1,
        8,
        10**30,
        1.5,
        math.nan,
        math.inf,
        True,
        None,
        [8],
        ["8GiB"],
        {"memory": "8GiB"},
        b"8GiB",
    ],
)
def test_memory_that_cannot_be_read_gives_a_sentence(written: object) -> None:
    with pytest.raises(Refusal) as refused:
        parse_memory(written)
    assert refused.value.code is Code.INVALID_AMOUNT
    assert refused.value.sentence.endswith(".") or refused.value.sentence.endswith("?")
    assert len(refused.value.sentence) < 200


@pytest.mark.parametrize(
    ("written", "cores"), [(25, 25), ("25", 25), ("25%", 25), (100, 100), (200, 200), (1, 1)]
)
def test_cores_that_can_be_read(written: object, cores: int) -> None:
    assert parse_cores(written) == cores


@pytest.mark.parametrize(
    "written", [0, -1, "0", "-5", "", "25\n", "2.5", 2.5, True, None, [25], "١٠", 10**9, "1" * 50, math.nan]
)
def test_cores_that_cannot_be_read_give_a_sentence(written: object) -> None:
    with pytest.raises(Refusal) as refused:
        parse_cores(written)
    assert refused.value.code is Code.INVALID_AMOUNT


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        (0, "0 MiB"),
        (256 * MIB, "256 MiB"),
        (768 * MIB, "768 MiB"),
        (GIB, "1 GiB"),
        (5 * GIB // 4, "1.25 GiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (94 * MEMORY_UNIT, "23.5 GiB"),
        (10 * GIB, "10 GiB"),
        (10 * GIB + MIB, "10 GiB"),
        (10 * GIB + 103 * MIB, "10.1 GiB"),
        (-GIB, "-1 GiB"),
    ],
)
def test_memory_as_people_read_it(amount: int, written: str) -> None:
    assert format_memory(amount) == written


def test_cores_as_people_read_them() -> None:
    assert format_cores(25) == "25 %"


@given(st.integers(1, 10_000))
def test_units_round_up_for_requests_and_down_for_cards(units: int) -> None:
    amount = units * MEMORY_UNIT
    assert units_up(amount) == units_down(amount) == units
    assert units_up(amount - 1) == units
    assert units_down(amount - 1) == units - 1


@given(st.integers(1, 4_000))
def test_what_is_written_can_be_read_again(units: int) -> None:
    assert parse_memory(format_memory(units * MEMORY_UNIT)) == units * MEMORY_UNIT


def test_every_code_has_a_status() -> None:
    assert set(HTTP_STATUS) == set(Code)
