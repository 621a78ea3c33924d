"""The command line on a node of a cluster: it finds the node's agent, and starts no second one."""

from __future__ import annotations

import json
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from gaia_plugin import paths
from gaia_plugin.cli import app
from gaia_plugin.commands import common, doctor_node
from gaia_plugin.commands.doctor_node import Told
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.kube.gpunode import Status
from tests.unit.cli.conftest import Place

INITIAL = 4026531836
ALL = "CapEff:\t000001ffffffffff\n"
RESOURCES = ("gaia.io/vgpu-cores", "gaia.io/vgpu-memory")


def note(state: Path, **more: Any) -> Path:
    """Leave in a state directory what a node's agent leaves there."""
    state.mkdir(parents=True, exist_ok=True)
    (state / "lock").touch()
    (state / "agent.json").write_text(json.dumps({"pid": 1, "driver": None, "kubernetes": True, **more}))
    return state


def invoke(*words: str, **environ: str) -> Any:
    """Return what a command says, or the sentence it ends with."""
    outcome = CliRunner().invoke(app, list(words), env={"GAIA_NODE_NAME": None, **environ})
    known = isinstance(outcome.exception, Refusal | Unusable)
    return str(outcome.exception) if known else outcome.output


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory of a node's agent that was told none; everybody else's is elsewhere."""
    monkeypatch.setattr(paths, "NODE_STATE", tmp_path / "node")
    monkeypatch.setenv("GAIA_STATE", str(tmp_path / "root"))
    return note(tmp_path / "node")


# -- no second agent


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--sim", "--memory", "1GiB", "--", "true"),
        ("run", "--memory", "1GiB", "--", "true"),
        ("demo",),
        ("demo", "--sim"),
        ("agent", "--sim"),
        ("agent", "--state", "elsewhere"),
    ],
)
@pytest.mark.parametrize("told", [False, True])
def test_no_second_agent_starts_on_a_node(
    node: Path, tmp_path: Path, words: tuple[str, ...], told: bool
) -> None:
    state = node
    if told:  # by GAIA_STATE
        (node / "lock").unlink()
        state = note(tmp_path / "root")
    said = invoke(*words)
    assert said.startswith("This machine is a node of a cluster")
    assert str(state) in said
    assert not (tmp_path / "root/sim/lock").exists()


def test_the_demos_help_is_there_on_a_node(node: Path) -> None:
    assert "JupyterHub" in invoke("demo", "--help")


def test_an_agent_that_is_away_is_not_said_to_be_none(node: Path) -> None:
    said = invoke("slots")
    assert str(node) in said
    assert "does not answer" in said
    assert "gaia run" not in said


def test_the_agent_of_the_root_itself_is_found(place: Place) -> None:
    process = place.run("--state", str(place.root), "--memory", "1GiB", program=("sleep", "60"))
    place.poll(lambda: f"run-{process.pid}" in place.gaia("slots").stdout, "the slot")
    assert str(place.root) in place.gaia("cards").stdout
    process.kill()
    process.wait()
    # the fixture ends the agent that it would find below the root
    (place.state).mkdir(exist_ok=True)
    (place.state / "agent.json").write_text((place.root / "agent.json").read_text())
    (place.state / "operator.sock").symlink_to(place.root / "operator.sock")


# -- names


class FakeNode:
    """An agent's client with slots (name, label, container) that remembers what it was asked."""

    def __init__(self, *slots: tuple[str, str, str]) -> None:
        self._slots = [SimpleNamespace(slot=slot, label=label, name=name) for slot, label, name in slots]

    def slots(self) -> list[Any]:
        return self._slots


SLOTS = (("aa", "ml/train", "main"), ("bb", "ml/pair", "left"), ("cc", "ml/pair", "right"), ("dd", "", "run"))


def asked(monkeypatch: pytest.MonkeyPatch, name: str, *nodes: FakeNode) -> str:
    found = [(Path(f"/state{number}"), node) for number, node in enumerate(nodes)]
    monkeypatch.setattr(common, "agents", lambda _: found)
    try:
        return common.agent_with(name, None)[1]
    except (Refusal, Unusable) as refused:
        return str(refused)


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("aa", "aa"),
        ("ml/train", "aa"),
        ("solo", "ee"),
        ("default/solo", "ee"),
        ("solo:main", "ee"),
        ("ml/train/main", "aa"),
        ("ml/pair/right", "cc"),
        ("ml/pair:right", "cc"),
        ("ml/train:main", "aa"),
        ("dd", "dd"),
    ],
)
def test_a_slot_is_called_by_its_pod(monkeypatch: pytest.MonkeyPatch, name: str, slot: str) -> None:
    assert asked(monkeypatch, name, FakeNode(*SLOTS, ("ee", "default/solo", "main"))) == slot


def test_a_pod_with_several_slots_wants_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    said = asked(monkeypatch, "ml/pair", FakeNode(*SLOTS))
    assert "ml/pair:left or ml/pair:right" in said


@pytest.mark.parametrize(
    "name", ["ml", "ml/", "/run", "ml/train/", "ml/train/left", "ml/train:left", "ml/train:", "", "run"]
)
def test_an_unknown_name_is_answered_with_those_there_are(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    said = asked(monkeypatch, name, FakeNode(*SLOTS))
    assert said == f"There is no slot {name!r}. `gaia slots` lists dd, ml/pair:left, ml/pair:right, ml/train."


def test_not_all_of_many_names_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = asked(monkeypatch, "x", FakeNode(*((f"s{number:02}", "", "") for number in range(40))))
    assert "s07 and 32 more" in said
    assert asked(monkeypatch, "x", FakeNode()).endswith("`gaia slots` lists none.")


# -- doctor


def told(tmp_path: Path, **more: Any) -> Told:
    own = {"node": "n", "state": tmp_path, "kubelet": tmp_path / "kubelet", "cdi": tmp_path / "cdi"}
    return Told(**{**own, "root": Path("/"), "kubeconfig": None, "driver": None, "registered": {}, **more})


def test_doctor_on_a_node_looks_at_the_node(node: Path, tmp_path: Path) -> None:
    kubeconfig = str(tmp_path / "none")
    directories = {"kubelet_dir": str(tmp_path / "kubelet"), "cdi_dir": str(tmp_path)}
    note(node, node="n", driver=str(tmp_path), driver_root="/", kubeconfig=kubeconfig, **directories)
    said = invoke("doctor")
    for what in ("kubelet", "registered", "hostPID", "mounts", "CDI", "API server", "driver", "agent"):
        assert f" {what}: " in said, what
    assert "port 8000" not in said
    assert "Single-machine" not in said
    assert "gaia run" not in said


def test_doctor_knows_a_node_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setattr(paths, "NODE_STATE", tmp_path / "nowhere")
    environ = {"GAIA_NODE_NAME": "n", "GAIA_STATE": str(tmp_path / "state"), "GAIA_DRIVER": str(place.driver)}
    more = {"GAIA_KUBELET_DIR": str(tmp_path), "GAIA_CDI_DIR": str(tmp_path), "GAIA_KUBECONFIG": "/none"}
    said = invoke("doctor", **environ, **more)
    assert f"good:   driver: found in {place.driver}" in said
    assert "broken: kubelet: " in said


@pytest.mark.parametrize(("root_is_there", "driver"), [(True, "{root}/usr/lib64"), (False, "/usr/lib64")])
def test_the_note_is_read_from_the_pod_and_from_the_node(
    node: Path, tmp_path: Path, root_is_there: bool, driver: str
) -> None:
    root = tmp_path / "host"
    if root_is_there:
        (root / "proc").mkdir(parents=True)
    note(node, driver_root=str(root), driver=f"{root}/usr/lib64")
    found = doctor_node.told(None)
    assert found is not None
    assert found.root == (root if root_is_there else Path("/"))
    assert str(found.driver) == driver.format(root=root)


@pytest.mark.parametrize(
    ("kubelet", "namespace", "verdict"),
    [(0, 1, "broken"), (0, INITIAL, "broken"), (7, INITIAL, "good"), (7, 1, "note"), (None, 1, "note")],
)
def test_doctor_tells_whose_processes_are_seen(kubelet: int | None, namespace: int, verdict: str) -> None:
    assert doctor_node._pids(kubelet, namespace).verdict == verdict


@pytest.mark.parametrize(
    ("status", "root", "shared", "verdict"),
    [
        (ALL, "/host", "shared:1", "good"),
        (ALL, "/host", "master:1", "broken"),
        (ALL, "/", "", "good"),
        ("CapEff:\t00000000a80425fb\n", "/", "shared:1", "broken"),
    ],
)
def test_doctor_tells_whether_mounts_work(
    tmp_path: Path, status: str, root: str, shared: str, verdict: str
) -> None:
    table = f"1 0 0:1 / / rw {shared} - overlay overlay rw"
    assert doctor_node._mounting(told(tmp_path, root=Path(root)), status, table).verdict == verdict


@pytest.mark.parametrize(
    ("ago", "resources", "verdict"),
    [(-9, RESOURCES, "good"), (-9, RESOURCES[:1], "broken"), (9, RESOURCES, "broken"), (0, (), "broken")],
)
def test_doctor_tells_whether_this_kubelet_knows_the_agent(
    tmp_path: Path, ago: float, resources: tuple[str, ...], verdict: str
) -> None:
    (tmp_path / "kubelet/device-plugins").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "kubelet/device-plugins/kubelet.sock"))
    registered = dict.fromkeys(resources, time.time() - ago)
    assert doctor_node._registered(told(tmp_path, registered=registered)).verdict == verdict


@pytest.mark.parametrize(
    ("status", "verdict", "said"),
    [
        (None, "note", "has not written it"),
        (Status(), "broken", "last written never"),
        (Status(ready=True, heartbeat="2026-01-01T00:00:00Z"), "broken", "last written 120 s ago"),
        (Status(ready=False, heartbeat="2026-01-01T00:01:57Z"), "note", "nothing may be placed"),
        (Status(ready=True, heartbeat="2026-01-01T00:01:57Z"), "good", "written 3 s ago"),
    ],
)
def test_doctor_tells_whether_the_cluster_hears_of_the_node(
    status: Status | None, verdict: str, said: str
) -> None:
    found = doctor_node._written("n", status, datetime(2026, 1, 1, 0, 2, tzinfo=UTC))
    assert (found.verdict, said in found.sentence) == (verdict, True)
