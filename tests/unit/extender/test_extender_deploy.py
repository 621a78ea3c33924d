"""What is deployed fits what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gaia_plugin.extender import binding
from gaia_plugin.extender.app import PREFIX, make_app
from gaia_plugin.extender.settings import ExtenderSettings
from gaia_plugin.kube.pods import cores_resource, memory_resource
from tests.unit.extender.test_extender_wire import service
from tests.unit.extender.worlds import World

MANIFESTS = Path(__file__).parents[3] / "deploy/scheduler.yaml"


def found(kind: str, name: str) -> dict[str, Any]:
    with MANIFESTS.open() as file:
        made: list[dict[str, Any]] = [
            each
            for each in yaml.safe_load_all(file)
            if each["kind"] == kind and each["metadata"]["name"] == name
        ]
    (one,) = made
    return one


def scheduler() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load(found("ConfigMap", "gaia-scheduler")["data"]["scheduler.yaml"])
    return told


def test_kube_scheduler_asks_where_the_extender_answers() -> None:
    (extender,) = scheduler()["extenders"]
    assert extender["urlPrefix"] == f"http://127.0.0.1:{ExtenderSettings().extender_port}{PREFIX}"
    paths = {getattr(route, "path", "") for route in make_app(service(World())).routes}
    verbs = {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")}
    assert {f"{PREFIX}/{verb}" for verb in verbs} <= paths


def test_only_pods_with_slices_come_here_and_all_nodes_are_shown() -> None:
    (extender,) = scheduler()["extenders"]
    assert extender["managedResources"] == [
        {"name": name, "ignoredByScheduler": False} for name in (memory_resource(), cores_resource())
    ]
    assert extender["nodeCacheCapable"] is True
    assert extender["ignorable"] is False
    (profile,) = scheduler()["profiles"]
    assert profile == {"schedulerName": "gaia-scheduler", "percentageOfNodesToScore": 100}


def test_kube_scheduler_waits_longer_than_a_bind_is_tried() -> None:
    (extender,) = scheduler()["extenders"]
    assert float(extender["httpTimeout"].removesuffix("s")) > binding.IN_ALL_SECONDS


def test_the_lease_may_be_written_under_its_name() -> None:
    election = scheduler()["leaderElection"]
    role = found("Role", "gaia-scheduler")
    named = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert named[0]["resourceNames"] == [election["resourceName"]]
    assert role["metadata"]["namespace"] == election["resourceNamespace"]


def test_the_extender_may_do_what_it_does_and_no_more() -> None:
    rules = found("ClusterRole", "gaia-extender")["rules"]
    allowed = {(one, verb) for rule in rules for one in rule["resources"] for verb in rule["verbs"]}
    assert allowed == {
        ("nodes", "list"), ("nodes", "watch"),
        ("pods", "get"), ("pods", "list"), ("pods", "watch"), ("pods", "patch"), ("pods/binding", "create"),
        ("gpunodes", "get"), ("gpunodes", "list"), ("gpunodes", "watch"), ("gpunodes", "patch"),
    }  # fmt: skip
