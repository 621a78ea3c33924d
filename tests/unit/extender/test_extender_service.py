"""The extender as a whole: over HTTP, with an API server that has bad days."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from gaia_plugin.cli import app
from gaia_plugin.errors import Unusable
from gaia_plugin.extender.check import check_here
from gaia_plugin.extender.main import listening, make_extender
from gaia_plugin.extender.settings import ExtenderSettings, read_settings
from tests.support.kubeapi import pod_manifest, until
from tests.unit.extender.conftest import Ask, Site, bind_pod
from tests.unit.extender.worlds import card, reservation


def request(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def test_over_http_everything_is_200_and_only_readiness_is_not(site: Site) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    unsynced = make_extender(site.api, ExtenderSettings())
    async with listening(unsynced, 0) as port:
        assert (await asyncio.to_thread(request, port, "GET", "/readyz"))[0] == 503
        assert (await asyncio.to_thread(request, port, "GET", "/livez"))[0] == 200
        status, body = await asyncio.to_thread(request, port, "POST", "/scheduler/filter", b"{}")
        assert (status, "still reading" in json.loads(body)["Error"]) == (200, True)
    extender = await site.start()
    async with listening(extender, 0) as port:
        assert (await asyncio.to_thread(request, port, "GET", "/readyz"))[0] == 200
        asked = json.dumps({"Pod": site.kube.pod("p1"), "NodeNames": ["n1"]}).encode()
        status, body = await asyncio.to_thread(request, port, "POST", "/scheduler/filter", asked)
        assert (status, json.loads(body)["NodeNames"]) == (200, ["n1"])
        status, body = await asyncio.to_thread(request, port, "POST", "/scheduler/prioritize", asked)
        assert (status, json.loads(body)) == (200, [{"Host": "n1", "Score": 10}])
        binding = {"PodName": "p1", "PodNamespace": "default", "PodUID": "p1", "Node": "n1"}
        raw = json.dumps(binding).encode()
        status, body = await asyncio.to_thread(request, port, "POST", "/scheduler/bind", raw)
        assert (status, json.loads(body)) == (200, {"Error": ""})
        for odd in (b"", b"{", b"\xff"):
            for verb in ("filter", "prioritize", "preempt", "bind"):
                status, _ = await asyncio.to_thread(request, port, "POST", f"/scheduler/{verb}", odd)
                assert status == 200


async def test_it_listens_on_this_machine_only_and_says_when_the_port_is_taken(site: Site) -> None:
    extender = make_extender(site.api, ExtenderSettings())
    async with listening(extender, 0) as port:
        with pytest.raises(Unusable, match="GAIA_EXTENDER_PORT"):
            async with listening(extender, port):
                raise AssertionError("two on one port")


async def test_dropped_watches_and_forgotten_history_lose_nothing(site: Site, filter_pod: Ask) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 64, 100)
    extender = await site.start()
    for index, in_stream in enumerate((True, False, True, False)):
        taken = [reservation("x", "a", 64, 100, pod="default/x")] if index % 2 == 0 else []
        site.pod("x", 64, 100, node="n1")
        site.kube.drop(mid_line=True)
        site.node("n1", [card("a")], reservations=taken)
        site.kube.compact(in_stream=in_stream)
        site.kube.drop(politely=in_stream)
        wanted: list[str] = [] if taken else ["n1"]
        if not taken:
            site.kube.remove("x")
        await until(
            lambda wanted=wanted: filter_pod(extender, "p1", ["n1"])["NodeNames"] == wanted, f"round {index}"
        )


async def test_a_missed_deletion_is_found_by_the_next_list(site: Site, filter_pod: Ask) -> None:
    site.node("n1", [card("a")])
    site.pod("x", 64, 100, node="n1")
    site.pod("p1", 64, 100)
    extender = await site.start()
    assert filter_pod(extender, "p1", ["n1"])["NodeNames"] == []
    site.kube.away()
    site.kube.remove("x")
    site.kube.compact()
    site.kube.back()
    await until(lambda: filter_pod(extender, "p1", ["n1"])["NodeNames"] == ["n1"])


async def test_while_the_api_server_is_away_filter_answers_and_bind_says_so(
    site: Site, filter_pod: Ask
) -> None:
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    site.kube.away()
    pod = pod_manifest("p1", node=None, uid="p1", limits={"gaia.io/vgpu-memory": "16"})
    body = json.dumps({"Pod": pod, "NodeNames": ["n1"]}).encode()
    assert json.loads(extender.service.filter(body))["NodeNames"] == ["n1"]
    assert "gave no answer" in await bind_pod(extender, "p1", "n1")
    site.kube.back()
    assert await bind_pod(extender, "p1", "n1") == ""


async def test_an_odd_gpunode_hides_no_other(site: Site, filter_pod: Ask) -> None:
    odd: dict[str, Any] = site.node("n0", [card("z")])
    odd["status"]["cards"][0]["index"] = "first"
    odd["status"]["slots"] = [{"uid": 7}]
    site.kube.put(odd, "gaia.io/v1alpha1/gpunodes")
    site.node("n1", [card("a")])
    site.pod("p1", 16, 25)
    extender = await site.start()
    assert filter_pod(extender, "p1", ["n0", "n1"])["NodeNames"] == ["n1"]


async def test_pods_of_others_cost_nothing(site: Site, filter_pod: Ask) -> None:
    for index in range(50):
        site.kube.put(pod_manifest(f"other-{index}", limits={"nvidia.com/gpu": "1"}))
    site.node("n1", [card("a")])
    extender = await site.start()
    assert dict(extender.pods.store) == {}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("GAIA_DOMAIN", "no domain", "is not a domain such as gaia.io"),
        ("GAIA_EXTENDER_PORT", "70000", "less than or equal to 65535"),
        ("GAIA_EXTENDER_PORT", "many", "valid integer"),
        ("GAIA_KUBECONFIG", "relative", "is not an absolute path"),
        ("GAIA_STALE_SECONDS", "1", "greater than or equal to 30"),
    ],
)
def test_settings_that_mean_nothing_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Unusable, match=f"{name}: .*{says}"):
        read_settings()


def test_settings_come_from_the_environment_and_options_count_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAIA_DOMAIN", "gpu.example.org")
    monkeypatch.setenv("GAIA_EXTENDER_PORT", "1234")
    settings = read_settings(extender_port=0, kubeconfig=None)
    assert (settings.domain, settings.extender_port) == ("gpu.example.org", 0)


def test_the_command_says_what_it_is() -> None:
    shown = CliRunner().invoke(app, ["extender", "--help"])
    assert shown.exit_code == 0
    assert "127.0.0.1 only" in " ".join(shown.output.split())


async def test_a_probe_asks_on_this_machine(site: Site) -> None:
    unsynced = make_extender(site.api, ExtenderSettings())
    async with listening(unsynced, 0) as port:
        with pytest.raises(Unusable, match="is not ready: the cluster has not been read yet"):
            await asyncio.to_thread(check_here, port)
    extender = await site.start()
    async with listening(extender, 0) as port:
        await asyncio.to_thread(check_here, port)
    with pytest.raises(Unusable, match="No extender answers on"):
        await asyncio.to_thread(check_here, port)
