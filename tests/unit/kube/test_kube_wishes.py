"""Every sentence of what may be asked for, and every way to get it wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.wishes import Wish, wish_of
from gaia_plugin.placement import Request
from tests.support.kubeapi import pod_manifest

LARGEST_UNITS = 64 * 4096


def read(manifest: dict[str, Any]) -> Pod:
    return msgspec.json.decode(json.dumps(manifest).encode(), type=Pod)


def pod_of(memory: str | None, cores: str | None, domain: str = "gaia.io", **annotations: str) -> Pod:
    limits = {f"{domain}/vgpu-memory": memory, f"{domain}/vgpu-cores": cores}
    return read(
        pod_manifest(
            "a",
            limits={key: text for key, text in limits.items() if text is not None},
            annotations={f"{domain}/{key.replace('_', '-')}": text for key, text in annotations.items()},
        )
    )


GRANTED: list[tuple[str, Pod, Wish]] = [
    ("memory alone", pod_of("16", None), Wish(Request(16))),
    ("both", pod_of("16", "25"), Wish(Request(16, 25))),
    ("a whole card with a bounded memory", pod_of("16", "100"), Wish(Request(16, 100))),
    ("one whole card by cores alone", pod_of(None, "100"), Wish(Request(None, 100))),
    ("two whole cards by cores alone", pod_of(None, "200"), Wish(Request(None, 200))),
    ("two whole cards with their memory bounded", pod_of("64", "200"), Wish(Request(64, 200))),
    ("split over two", pod_of("32", "50", vgpu_count="2"), Wish(Request(32, 50, 2))),
    ("memory alone over four", pod_of("32", None, vgpu_count="4"), Wish(Request(32, None, 4))),
    ("whole cards, the count said too", pod_of(None, "200", vgpu_count="2"), Wish(Request(None, 200, 2))),
    ("a count of one", pod_of("16", "25", vgpu_count="1"), Wish(Request(16, 25))),
    ("sixteen cards", pod_of(None, "1600"), Wish(Request(None, 1600))),
    ("a model", pod_of("16", None, gpu_model="A100"), Wish(Request(16, models=frozenset({"A100"})))),
    (
        "models",
        pod_of("16", None, gpu_model=" A100 , NVIDIA L40S,T4"),
        Wish(Request(16, models=frozenset({"A100", "NVIDIA L40S", "T4"}))),
    ),
    ("hard", pod_of("16", "25", compute="hard"), Wish(Request(16, 25))),
    ("elastic", pod_of("16", "25", compute="elastic"), Wish(Request(16, 25), compute="elastic")),
    (
        "both maxima",
        pod_of("16", "25", vgpu_max_memory="64", vgpu_max_cores="75"),
        Wish(Request(16, 25), 64, 75),
    ),
    ("a maximum in bytes", pod_of("16", "25", vgpu_max_memory="16Gi"), Wish(Request(16, 25), 64)),
    ("a maximum in GiB",
     pod_of("16", "25", vgpu_max_memory="16.1 GiB"), Wish(Request(16, 25), 65)),
    (
        "a maximum of compute only",
        pod_of("16", "25", vgpu_max_cores="50%"),
        Wish(Request(16, 25), None, 50),
    ),
    (
        "a maximum over two cards",
        pod_of("16", "50", vgpu_count="2", vgpu_max_memory="64"),
        Wish(Request(16, 50, 2), 64),
    ),
    ("maxima equal to the request", pod_of("16", "25", vgpu_max_memory="16", vgpu_max_cores="25"),
     Wish(Request(16, 25), 16, 25)),
    ("as Kubernetes writes a thousand", pod_of("1k", "100"), Wish(Request(1000, 100))),
    ("1e3", pod_of("1e3", "100"), Wish(Request(1000, 100))),
    ("1Ki", pod_of("1Ki", "100"), Wish(Request(1024, 100))),
    ("thousandths that come out even", pod_of("16000m", "25"), Wish(Request(16, 25))),
    ("the smallest", pod_of("1", "1"), Wish(Request(1, 1))),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "wish"), [row[1:] for row in GRANTED], ids=[row[0] for row in GRANTED])
def test_what_may_be_asked_for(pod: Pod, wish: Wish) -> None:
    assert wish_of(pod, "main") == wish


AMOUNT, BAD = Code.INVALID_AMOUNT, Code.BAD_REQUEST

REFUSED: list[tuple[str, Pod, Code, tuple[str, ...]]] = [
    ("nothing", pod_of(None, None), BAD, ("neither gaia.io/vgpu-memory nor gaia.io/vgpu-cores",)),
    (
        "cores alone below a card", pod_of(None, "25"), AMOUNT,
        ("Container main: 25 % compute without memory", "such as 6 GiB", "whole cards (100 %)",
         "the limit gaia.io/vgpu-memory, in units of 256 MiB"),
    ),
    ("cores above a card that are no whole cards", pod_of("16", "150"), AMOUNT, ("100 %", "200 %")),
    ("cores alone above a card", pod_of(None, "250"), AMOUNT, ("200 %", "300 %")),
    ("cores that do not split", pod_of("16", "25", vgpu_count="2"), AMOUNT, ("24 %", "26 %")),
    ("memory that does not split", pod_of("17", "50", vgpu_count="2"), AMOUNT, ("4 GiB or 4.5 GiB",)),
    ("more cores than the cards have", pod_of("16", "300", vgpu_count="2"), AMOUNT, ("200 %",)),
    ("part of two cards by cores alone", pod_of(None, "100", vgpu_count="2"), AMOUNT, ("without memory",)),
    ("one card said, two meant", pod_of(None, "200", vgpu_count="1"), AMOUNT,
     ("2 whole cards", "set it to 2")),
    ("no memory", pod_of("0", "25"), AMOUNT, ("more than zero", "256 MiB")),
    ("no memory at all", pod_of("0", None), AMOUNT, ("more than zero",)),
    ("no cores", pod_of("16", "0"), AMOUNT, ("from 1 on",)),
    ("negative memory", pod_of("-1", "25"), AMOUNT, ("'-1': negative", "whole number from 1 on")),
    ("negative cores", pod_of("16", "-25"), AMOUNT, ("gaia.io/vgpu-cores is '-25': negative",)),
    ("half a unit", pod_of("1500m", "25"), AMOUNT, ("'1500m': not a whole number",)),
    ("more than 64 bits", pod_of("9223372036854775808", "25"), AMOUNT, ("more than Kubernetes can count",)),
    ("as much as 64 bits hold", pod_of("9223372036854775807", "25"), AMOUNT, ("8 GiB is 32", "262144")),
    ("bytes taken for units", pod_of("8Gi", "25"), AMOUNT, ("units of 256 MiB", "8 GiB is 32")),
    ("cores of a data centre", pod_of("16", "1e6"), AMOUNT, ("16 whole cards", "1600")),
    ("words", pod_of("all", "25"), AMOUNT, ("'all': not a number",)),
    ("endless digits", pod_of("9" * 500, "25"), AMOUNT, ("...': not a number",)),
    ("a power that never ends", pod_of("1e999999999999", "25"), AMOUNT, ("more than Kubernetes can count",)),
    ("no card", pod_of("16", "25", vgpu_count="0"), AMOUNT, ("vgpu-count is '0'", "from 1 to 16")),
    ("a count of 17", pod_of("17", "17", vgpu_count="17"), AMOUNT, ("from 1 to 16",)),
    ("a count with a line's end", pod_of("16", "26", vgpu_count="2\n"), AMOUNT, ("'2\\n'",)),
    ("a count in other digits", pod_of("16", "26", vgpu_count="٢"), AMOUNT, ("vgpu-count",)),
    ("a negative count", pod_of("16", "26", vgpu_count="-2"), AMOUNT, ("vgpu-count",)),
    ("an empty count", pod_of("16", "26", vgpu_count=""), AMOUNT, ("vgpu-count is ''",)),
    ("no model", pod_of("16", None, gpu_model=""), BAD, ("gpu-model is ''", "such as A100,L40S")),
    ("an empty model", pod_of("16", None, gpu_model="A100,,T4"), BAD, ("separated by commas",)),
    ("a model of signs", pod_of("16", None, gpu_model="A100,!!"), BAD, ("separated by commas",)),
    ("too many models", pod_of("16", None, gpu_model=",".join(f"m{n}" for n in range(17))), BAD, ("commas",)),
    ("a model that never ends", pod_of("16", None, gpu_model="A" * 5000), BAD, ("...'",)),
    ("another way to compute", pod_of("16", None, compute="soft"), BAD, ("'soft'", "hard", "elastic")),
    ("compute in capitals", pod_of("16", None, compute="Hard"), BAD, ("'Hard'",)),
    ("a maximum below the request", pod_of("16", "25", vgpu_max_memory="8"), AMOUNT,
     ("vgpu-max-memory is 2 GiB", "4 GiB or more")),
    ("a maximum of compute below the request", pod_of("16", "25", vgpu_max_cores="20"), AMOUNT,
     ("vgpu-max-cores is 20 %", "25 % or more")),
    ("a maximum of zero", pod_of("16", "25", vgpu_max_memory="0"), AMOUNT,
     ("vgpu-max-memory is '0'", "16Gi")),
    ("a maximum beyond reason", pod_of("16", "25", vgpu_max_memory="9" * 18), AMOUNT, ("262144",)),
    ("a maximum in words", pod_of("16", "25", vgpu_max_memory="much"), AMOUNT, ("vgpu-max-memory: 'much'",)),
    ("a maximum with a line's end", pod_of("16", "25", vgpu_max_memory="64\n"), AMOUNT, ("vgpu-max-memory",)),
    ("a negative maximum", pod_of("16", "25", vgpu_max_memory="-64"), AMOUNT, ("vgpu-max-memory",)),
    ("a maximum of compute in words", pod_of("16", "25", vgpu_max_cores="all"), AMOUNT,
     ("vgpu-max-cores: 'all'",)),
    ("a maximum of no compute", pod_of("16", "25", vgpu_max_cores="0"), AMOUNT, ("vgpu-max-cores",)),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "code", "parts"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_refused_and_what_would_do(pod: Pod, code: Code, parts: tuple[str, ...]) -> None:
    with pytest.raises(Refusal) as caught:
        wish_of(pod, "main")
    assert caught.value.code == code
    for part in parts:
        assert part in caught.value.sentence
    assert len(caught.value.sentence) < 400


ABOVE = [
    ("40", None, None, ("10 GiB", "largest card has 8 GiB", "at most 32 units", 'gaia.io/vgpu-count: "2"')),
    ("33", "25", None, ("at most 32 units (8 GiB)", 'vgpu-count: "2"')),
    ("96", "50", "2", ("at most 64 units (16 GiB)", 'vgpu-count: "3"')),
    ("2000", "25", None, ("at most 32 units (8 GiB).",)),
]


@pytest.mark.parametrize(("memory", "cores", "count", "parts"), ABOVE)
def test_memory_above_one_card(
    memory: str, cores: str | None, count: str | None, parts: tuple[str, ...]
) -> None:
    pod = pod_of(memory, cores, **({"vgpu_count": count} if count else {}))
    with pytest.raises(Refusal) as caught:
        wish_of(pod, "main", card_units=32)
    assert caught.value.code is AMOUNT
    for part in parts:
        assert part in caught.value.sentence


def test_memory_of_exactly_one_card_is_no_more_than_one_card() -> None:
    assert wish_of(pod_of("32", None), "main", card_units=32) == Wish(Request(32))
    assert wish_of(pod_of("64", None, vgpu_count="2"), "main", card_units=32) == Wish(Request(64, None, 2))


def test_the_example_for_cores_alone_is_of_the_card_there_is() -> None:
    with pytest.raises(Refusal, match="such as 2 GiB"):
        wish_of(pod_of(None, "25"), "main", card_units=32)


LIMITS = {"gaia.io/vgpu-memory": "16", "gaia.io/vgpu-cores": "25"}


def test_a_plain_init_container_is_told_what_to_do_instead() -> None:
    pod = read(pod_manifest("a", limits=LIMITS, init=[{"name": "warm", "resources": {"limits": LIMITS}}]))
    with pytest.raises(
        Refusal, match=r"Container warm: a plain init .* app container.*restartPolicy: Always"
    ):
        wish_of(pod, "warm")
    assert wish_of(pod, "main") == Wish(Request(16, 25))


def test_a_sidecar_may_ask() -> None:
    side = {"name": "side", "restartPolicy": "Always", "resources": {"limits": LIMITS}}
    assert wish_of(read(pod_manifest("a", init=[side])), "side") == Wish(Request(16, 25))


def test_a_container_that_is_not_there() -> None:
    with pytest.raises(Refusal, match=r"default/a has no container 'x'"):
        wish_of(pod_of("16", None), "x")


def with_requests(limits: dict[str, str], requests: dict[str, str]) -> Pod:
    manifest = pod_manifest("a")
    manifest["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": requests}
    return read(manifest)


def test_limits_and_requests_must_be_equal() -> None:
    key = "gaia.io/vgpu-memory"
    assert wish_of(with_requests({key: "1k"}, {key: "1000"}), "main") == Wish(Request(1000))
    assert wish_of(with_requests({key: "16"}, {}), "main") == Wish(Request(16))
    with pytest.raises(Refusal, match="16 under limits and '8' under requests"):
        wish_of(with_requests({key: "16"}, {key: "8"}), "main")
    with pytest.raises(Refusal, match="as a request only"):
        wish_of(with_requests({}, {key: "8"}), "main")


def test_another_domain() -> None:
    pod = pod_of("16", "25", domain="gpu.example.org", compute="elastic")
    assert wish_of(pod, "main", domain="gpu.example.org") == Wish(Request(16, 25), compute="elastic")
    with pytest.raises(Refusal, match="neither"):
        wish_of(pod, "main")


def outcome(pod: Pod, card_units: int | None) -> Wish | Refusal:
    try:
        return wish_of(pod, "main", card_units=card_units)
    except Refusal as refusal:
        return refusal


anything = (
    st.none() | st.text(max_size=30) | st.from_regex(r"-?[0-9]{1,20}([kmE]|Ki|e[0-9]{1,3})?", fullmatch=True)
)


@settings(deadline=None)
@given(
    memory=anything,
    cores=anything,
    card=st.none() | st.integers(1, 1000),
    annotations=st.dictionaries(
        st.sampled_from(
            ["vgpu_count", "gpu_model", "vgpu_max_memory", "vgpu_max_cores", "compute", "placement"]
        ),
        st.text(max_size=30) | st.integers(-2, 3000).map(str),
    ),
)
def test_no_pod_crashes_it(
    memory: str | None, cores: str | None, card: int | None, annotations: dict[str, str]
) -> None:
    result = outcome(pod_of(memory, cores, **annotations), card)
    if isinstance(result, Refusal):
        assert result.sentence.endswith(".")
        assert result.code in (AMOUNT, BAD)
    else:
        assert result.max_units is None or result.max_units >= 1
        assert result.max_cores is None or result.max_cores >= 1
