"""Names, labels and documents of the metrics agree with each other and with Prometheus' conventions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector

from gaia_plugin.agent.meters import Outcome
from gaia_plugin.agent.pods.unmanaged import Kind
from gaia_plugin.metrics.families import FAMILIES, SLOT_STATES, WRONGS, Family, labels_of
from gaia_plugin.metrics.tally import BOUNDS

ROOT = Path(__file__).parents[3]
ABOUT = {"agent": "agent", "card": "card", "slot": "slot", "part": "slot on a card"}
NAMES = {family.name: family for family in FAMILIES}


def by_name(family: Family) -> str:
    return family.name


def test_no_name_is_used_twice() -> None:
    assert len(NAMES) == len(FAMILIES) > 30


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_names_follow_the_conventions(family: Family) -> None:
    assert re.fullmatch(r"gaia_[a-z]+(_[a-z]+)*", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert not re.search(
        r"_(ms|milliseconds|minutes|mib|gib|kb|mb|percent|permille|count|sum|bucket)(_|$)", family.name
    )
    if family.kind == "histogram":
        assert family.name.endswith("_seconds")
    if "memory" in family.name:
        assert family.name.endswith("_bytes")
    if "compute" in family.name:
        assert family.name.endswith("_ratio")


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
@pytest.mark.parametrize("on_node", [True, False])
def test_labels_can_be_had(family: Family, on_node: bool) -> None:
    labels = labels_of(family, on_node=on_node)
    assert len(set(labels)) == len(labels)
    assert not {"le", "quantile", "job", "instance"} & set(labels)
    assert all(re.fullmatch(r"[a-z]+", label) for label in labels)


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_meanings_are_sentences(family: Family) -> None:
    assert family.meaning.endswith(".")
    assert "|" not in family.meaning


def test_bounds_rise() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))


def test_the_reference_lists_all_and_no_other() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    wanted = [
        f"| `{family.name}` | {family.kind} | {ABOUT[family.about]} | "
        f"{', '.join(f'`{label}`' for label in family.labels)} | {family.meaning} |"
        for family in FAMILIES
    ]
    assert [line for line in text.splitlines() if line.startswith("| `gaia_")] == wanted


def test_what_can_be_wrong_is_what_the_watchdog_says() -> None:
    assert tuple(kind.value for kind in Kind) == WRONGS


def test_the_reference_says_what_the_values_of_labels_mean() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    for value in (*SLOT_STATES, *WRONGS, *(outcome.value for outcome in Outcome)):
        assert f"`{value}`" in text


def rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())["groups"]
    return list(group["rules"])


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_what_there_is(rule: dict[str, object]) -> None:
    expression = str(rule["expr"])
    asked = set(re.findall(r"\bgaia_[a-z_]+", expression))
    assert asked <= set(NAMES)
    assert asked or expression.startswith("up{")
    known = {label for name in asked for label in labels_of(NAMES[name], on_node=True)} | {"job", "instance"}
    named = set(re.findall(r"([a-z]+)\s*(?:=~|!=|=)\s*\"", expression))
    grouped = {
        label for found in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in found.split(", ")
    }
    shown = set(re.findall(r"\$labels\.([a-z]+)", str(rule["annotations"])))
    assert named | grouped | shown <= known
    assert expression.count("(") == expression.count(")")


def test_alerts_tell_what_happened_and_what_to_do() -> None:
    found = rules()
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_manifest_opens_the_port_that_is_served_by_itself() -> None:
    from gaia_plugin.agent.settings import AgentSettings

    *_, agent = yaml.safe_load_all((ROOT / "deploy/agent.yaml").read_text())
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert port == {"name": "metrics", "containerPort": AgentSettings(node_name="n").metrics_address.port}


def test_the_reference_lists_what_a_process_costs() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert {name for name in names if f"`{name}`" not in text} == set()
