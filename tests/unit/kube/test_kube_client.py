from __future__ import annotations

import json
import socket
from contextlib import aclosing
from pathlib import Path

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.connection import find_server
from gaia_plugin.kube.errors import ApiError, from_body
from tests.support.kubeapi import FakeKubeApi, pod_manifest, until

PODS = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/a"


async def test_requests_carry_the_token(kube: FakeKubeApi, api: Api) -> None:
    kube.put(pod_manifest("a"))
    assert json.loads(await api.get(ONE))["metadata"]["name"] == "a"
    assert kube.asked[-1].headers["authorization"] == "Bearer secret"


async def test_a_list_comes_in_pages_of_one_moment(kube: FakeKubeApi, api: Api) -> None:
    for number in range(7):
        kube.put(pod_manifest(f"p{number}"))

    def meanwhile(asked: object) -> None:
        kube.put(pod_manifest(f"late{len(kube.asked)}"))

    pages = []
    async for body in api.list_pages(PODS, limit=3):
        pages.append(json.loads(body))
        kube.before_page(meanwhile)
    assert [len(page["items"]) for page in pages] == [3, 3, 1]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    assert [item["metadata"]["name"] for page in pages for item in page["items"]] == [
        f"p{n}" for n in range(7)
    ]


async def test_a_list_whose_moment_is_forgotten_ends_as_expired(kube: FakeKubeApi, api: Api) -> None:
    for number in range(4):
        kube.put(pod_manifest(f"p{number}"))
    pages = api.list_pages(PODS, limit=3)
    assert await anext(pages)
    kube.put(pod_manifest("more"))
    kube.compact()
    with pytest.raises(ApiError) as caught:
        await anext(pages)
    assert caught.value.expired


async def test_a_refusal_has_the_servers_words(kube: FakeKubeApi, api: Api) -> None:
    with pytest.raises(ApiError) as caught:
        await api.get(ONE)
    assert caught.value.missing
    assert caught.value.reason == "NotFound"
    assert str(caught.value) == (
        f'The Kubernetes API server answered 404 NotFound (GET {ONE}): pods "a" not found'
    )


async def test_a_refusal_says_how_long_to_wait(kube: FakeKubeApi, api: Api) -> None:
    kube.refuse(429, "TooManyRequests", retry_after="7")
    with pytest.raises(ApiError) as caught:
        await api.get(ONE)
    assert (caught.value.status, caught.value.retry_after) == (429, 7.0)


async def test_credentials_that_are_refused_are_read_again(
    kube: FakeKubeApi, api: Api, tmp_path: Path
) -> None:
    kube.put(pod_manifest("a"))
    kube.kubeconfig(tmp_path / "kubeconfig", token="newer")
    kube.refuse(401, "Unauthorized")
    with pytest.raises(ApiError):
        await api.get(ONE)
    assert await api.get(ONE)
    assert kube.asked[-1].headers["authorization"] == "Bearer newer"

    (tmp_path / "kubeconfig").unlink()
    kube.refuse(401, "Unauthorized")
    with pytest.raises(ApiError) as caught:
        await api.get(ONE)
    assert caught.value.status == 401
    assert await api.get(ONE)


async def test_a_server_that_is_away_gives_no_answer(kube: FakeKubeApi, api: Api) -> None:
    kube.away()
    with pytest.raises(ApiError, match="gave no answer") as caught:
        await api.get(ONE)
    assert caught.value.no_answer
    kube.back()
    kube.put(pod_manifest("a"))
    assert await api.get(ONE)


async def test_a_watch_brings_whole_lines_and_ends_with_the_server(kube: FakeKubeApi, api: Api) -> None:
    version = kube.put(pod_manifest("a"))["metadata"]["resourceVersion"]
    lines = []
    async with aclosing(api.watch(PODS, {"resourceVersion": version})) as watch:  # type: ignore[type-var]
        async for line in watch:
            lines.append(line)
            if len(lines) == 1:
                kube.change("a", {"metadata": {"annotations": {"long": "x" * 300_000}}})
            if len(lines) == 2:
                kube.drop(politely=True)
    assert lines[0] == b""
    event = json.loads(lines[1])
    assert event["type"] == "MODIFIED"
    assert len(event["object"]["metadata"]["annotations"]["long"]) == 300_000
    await until(lambda: kube.watches() == 0)


@pytest.mark.parametrize("politely", [False, True])
async def test_half_an_event_is_never_shown(kube: FakeKubeApi, api: Api, politely: bool) -> None:
    watch = api.watch(PODS)
    assert await anext(watch) == b""
    kube.drop(mid_line=True, politely=politely)
    with pytest.raises(StopAsyncIteration if politely else ApiError):
        await anext(watch)


async def test_a_watch_that_is_left_is_closed(kube: FakeKubeApi, api: Api) -> None:
    async with aclosing(api.watch(PODS)) as watch:  # type: ignore[type-var]
        async for _ in watch:
            break
    kube.bookmark()  # the server notices a closed connection when it writes
    await until(lambda: kube.watches() == 0)


async def test_a_silent_watch_is_given_up(kube: FakeKubeApi, api: Api) -> None:
    with pytest.raises(ApiError) as caught:
        async for _ in api.watch(PODS, silence=0.05):
            pass
    assert caught.value.no_answer


async def test_no_answer_in_time_is_an_error(kube: FakeKubeApi, tmp_path: Path) -> None:
    # The kernel takes the connection; nobody ever reads from it.
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        path = kube.kubeconfig(tmp_path / "k")
        path.write_text(path.read_text().replace(str(kube.port), str(deaf.getsockname()[1])))
        api = await Api.connect(path)
        with pytest.raises(ApiError, match="gave no answer"):
            await api.get(ONE, timeout=0.1)
        await api.close()


async def test_a_page_that_is_no_json_is_an_error(
    kube: FakeKubeApi, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> bytes:
        return b'{"items": ['

    monkeypatch.setattr(api, "_ask", broken)
    with pytest.raises(ApiError, match="no JSON"):
        async for _ in api.list_pages(PODS):
            pass


@pytest.mark.parametrize(
    ("body", "reason", "message"),
    [
        (b'{"kind":"Status","reason":"Conflict","message":"no","code":409}', "Conflict", "no"),
        (b"<html>bad gateway", "Error", "<html>bad gateway"),
        (b"\xff\xfe", "Error", "��"),
        (b"", "Error", "it said no more."),
        (b'{"message": 5}', "Error", '{"message": 5}'),
        (b"[]", "Error", "[]"),
    ],
)
def test_any_body_of_a_refusal_is_an_error(body: bytes, reason: str, message: str) -> None:
    error = from_body(body, status=502)
    assert (error.status, error.reason, error.message) == (502, reason, message)


class TestFindingTheServer:
    async def test_without_anything_it_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(Unusable, match="set KUBECONFIG"):
            await find_server(environment={"HOME": str(tmp_path)})

    async def test_the_kubeconfig_of_the_environment(self, kube: FakeKubeApi, tmp_path: Path) -> None:
        path = kube.kubeconfig(tmp_path / "k")
        found = await find_server(
            environment={"KUBECONFIG": str(path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        )
        assert found.host == kube.url

    async def test_the_kubeconfig_at_home(self, kube: FakeKubeApi, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        kube.kubeconfig(tmp_path / ".kube" / "config")
        assert (await find_server(environment={"HOME": str(tmp_path)})).host == kube.url

    @pytest.mark.parametrize("text", ["", "nonsense", "[1, 2]", "{", "current-context: x", "\x00"])
    async def test_a_broken_kubeconfig_is_named(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "k").write_text(text)
        with pytest.raises(Unusable, match="cannot be used"):
            await find_server(tmp_path / "k")

    async def test_a_pod_without_a_service_account(self) -> None:
        with pytest.raises(Unusable, match="automountServiceAccountToken"):
            await find_server(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})

    async def test_a_service_account_is_read_and_its_token_renewed(
        self, kube: FakeKubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from kubernetes.aio.config import incluster_config

        (tmp_path / "token").write_text("first\n")
        (tmp_path / "ca.crt").write_text("x")
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        monkeypatch.delenv("KUBECONFIG", raising=False)
        found = await find_server()
        assert found.host == "https://[::1]:443"
        with pytest.raises(Unusable, match="certificates"):
            Api(found)
        found.host, found.ssl_ca_cert = kube.url, None
        api = Api(found)
        kube.put(pod_manifest("a"))
        await api.get(ONE)
        assert kube.asked[-1].headers["authorization"] == "bearer first"
        await api.close()
