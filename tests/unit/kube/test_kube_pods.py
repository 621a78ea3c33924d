from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gaia_plugin.kube.pods import Pod, Pods, asks, container_ended, ended, holders
from tests.support.kubeapi import pod_manifest, status_of

SLICE = {"gaia.io/vgpu-memory": "16", "gaia.io/vgpu-cores": "25"}
DELETED = "2026-11-29T12:00:00Z"


def read(manifest: dict[str, Any]) -> Pod:
    return msgspec.json.decode(json.dumps(manifest).encode(), type=Pod)


def pod_with(
    *statuses: dict[str, Any],
    phase: str = "Running",
    deleted: bool = False,
    policy: str = "Always",
    containers: tuple[str, ...] = ("main",),
    rules: bool = False,
) -> Pod:
    manifest = pod_manifest("a", limits=SLICE, phase=phase, restart_policy=policy)
    first = manifest["spec"]["containers"][0]
    if rules:
        first = {**first, "restartPolicyRules": [{"action": "Restart"}]}
    manifest["spec"]["containers"] = [{**first, "name": name} for name in containers]
    manifest["status"]["containerStatuses"] = list(statuses)
    if deleted:
        manifest["metadata"]["deletionTimestamp"] = DELETED
    return read(manifest)


def test_the_fields_that_gaia_reads() -> None:
    manifest = pod_manifest("a", limits=SLICE, annotations={"gaia.io/compute": "elastic"})
    manifest["status"]["containerStatuses"] = [status_of(running={"startedAt": DELETED})]
    manifest["metadata"]["resourceVersion"] = "7"
    pod = read(manifest)
    assert (pod.title, pod.metadata.version, pod.spec.node_name) == ("default/a", "7", "node1")
    assert pod.annotations["gaia.io/compute"] == "elastic"
    main = pod.container("main")
    assert main is not None
    assert main.limits["gaia.io/vgpu-memory"] == "16"
    status = pod.container_status("main")
    assert status is not None
    assert status.container_id is not None
    assert status.container_id.startswith("containerd://")
    assert status.started
    assert status.state is not None
    assert status.state.running is not None
    assert status.state.terminated is None


def test_a_pod_with_hardly_anything_in_it() -> None:
    pod = read({"metadata": {"name": "a", "uid": "u"}})
    assert ended(pod)
    assert pod.annotations == {}
    assert pod.container("main") is None
    assert list(holders(pod)) == []


def test_nulls_where_kubernetes_writes_them() -> None:
    pod = read({
        "metadata": {"name": "a", "uid": "u", "annotations": None, "deletionTimestamp": None},
        "spec": {"containers": None, "initContainers": None},
        "status": {"containerStatuses": None},
    })  # fmt: skip
    assert Pods().keep(pod) is pod


def test_only_what_is_ours_is_kept() -> None:
    manifest = pod_manifest("a", limits={**SLICE, "nvidia.com/gpu": "1"}, annotations={"gaia.io/x": "1"})
    pod = Pods().keep(read(manifest))
    assert pod is not None
    assert dict(pod.annotations) == {"gaia.io/x": "1"}
    main = pod.container("main")
    assert main is not None
    assert dict(main.limits) == SLICE
    assert main.requests is main.limits


def test_a_domain_that_begins_like_ours_is_not_ours() -> None:
    pod = Pods("gaia.io").keep(read(pod_manifest("a", limits={"gaia.iota/vgpu-memory": "1"})))
    assert pod is not None
    assert not list(holders(pod))


def test_pods_without_a_slice_can_be_left_out() -> None:
    kind = Pods(everything=False)
    assert kind.keep(read(pod_manifest("a"))) is None
    assert kind.keep(read(pod_manifest("a", limits=SLICE))) is not None


@pytest.mark.parametrize(
    ("limits", "answer"),
    [
        ({}, False),
        ({"gaia.io/vgpu-memory": "1"}, True),
        ({"gaia.io/vgpu-cores": "100"}, True),
        ({"gaia.io/vgpu-memory": "0", "gaia.io/vgpu-cores": "0"}, False),
        ({"gaia.io/vgpu-memory": "0", "gaia.io/vgpu-cores": "1"}, True),
        ({"gaia.io/vgpu-memory": "nonsense"}, True),
        ({"gaia.io/vgpu-memory": "-1"}, True),
        ({"other.io/vgpu-memory": "1"}, False),
    ],
)
def test_who_asks_for_a_slice(limits: dict[str, str], answer: bool) -> None:
    assert asks(read(pod_manifest("a", limits=limits)).spec.containers[0]) is answer  # type: ignore[index]


def test_sidecars_hold_slices_and_plain_init_containers_do_not() -> None:
    init = [
        {"name": "plain", "resources": {"limits": SLICE}},
        {"name": "side", "restartPolicy": "Always", "resources": {"limits": SLICE}},
    ]
    pod = read(pod_manifest("a", limits=SLICE, init=init))
    assert [container.name for container in holders(pod)] == ["main", "side"]


RUNNING = status_of(running={})
WAITING = status_of(waiting={"reason": "CrashLoopBackOff"})
DONE = status_of(terminated={"exitCode": 0})
FAILED = status_of(terminated={"exitCode": 1})

ENDS = [
    ("runs", pod_with(RUNNING), False),
    ("has no status yet", pod_with(phase="Pending"), False),
    ("crashed and starts again", pod_with(FAILED), False),
    ("waits to start again", pod_with(WAITING), False),
    ("terminating and runs", pod_with(RUNNING, deleted=True), False),
    ("terminating and waits: its kubelet may start it still", pod_with(WAITING, deleted=True), False),
    ("terminating, no status", pod_with(phase="Pending", deleted=True), False),
    ("terminating and ended", pod_with(DONE, deleted=True), True),
    ("terminating and failed", pod_with(FAILED, deleted=True), True),
    ("succeeded", pod_with(DONE, phase="Succeeded"), True),
    ("refused at admission", pod_with(phase="Failed"), True),
    ("evicted before it started", pod_with(WAITING, phase="Failed"), True),
    ("failed on a lost node that says it runs", pod_with(RUNNING, phase="Failed"), False),
    ("never starts again", pod_with(FAILED, policy="Never"), True),
    ("never starts again but runs", pod_with(RUNNING, policy="Never"), False),
    ("done, starts again only on failure", pod_with(DONE, policy="OnFailure"), True),
    ("failed, starts again on failure", pod_with(FAILED, policy="OnFailure"), False),
    ("a policy of the future", pod_with(DONE, policy="Sometimes"), False),
    ("never, but with rules of its own", pod_with(FAILED, policy="Never", rules=True), False),
    ("one of two ended", pod_with(DONE, policy="Never", containers=("main", "b")), False),
    (
        "both ended",
        pod_with(DONE, status_of("b", terminated={"exitCode": 3}), policy="Never", containers=("main", "b")),
        True,
    ),
]


@pytest.mark.parametrize(
    ("pod", "answer"), [(pod, answer) for _, pod, answer in ENDS], ids=[n for n, _, _ in ENDS]
)
def test_when_what_a_pod_holds_is_free_again(pod: Pod, answer: bool) -> None:
    assert ended(pod) is answer


def test_a_container_ends_before_its_pod() -> None:
    pod = pod_with(DONE, status_of("b", running={}), policy="Never", containers=("main", "b"))
    assert container_ended(pod, "main")
    assert not container_ended(pod, "b")
    assert not ended(pod)


def test_a_container_without_a_slice_holds_nothing() -> None:
    manifest = pod_manifest("a", limits=SLICE, restart_policy="Never")
    manifest["spec"]["containers"].append({"name": "log"})
    manifest["status"]["containerStatuses"] = [DONE, status_of("log", running={})]
    assert ended(read(manifest))


def test_a_restarted_sidecar_still_holds() -> None:
    init = [{"name": "side", "restartPolicy": "Always", "resources": {"limits": SLICE}}]
    manifest = pod_manifest("a", init=init, restart_policy="Never")
    manifest["status"]["initContainerStatuses"] = [status_of("side", terminated={"exitCode": 0})]
    assert not ended(read(manifest))
