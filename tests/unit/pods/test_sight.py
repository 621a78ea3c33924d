"""What is seen of pods, and the difference between gone and not seen yet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.ports import NodeFacts
from gaia_plugin.agent.pods.publish import Publisher
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.replica import Change
from gaia_plugin.shares import Share
from tests.support.kubeapi import pod_manifest, status_of

MAIN = Owner("uid", "main")


class Reflected:
    """A reflector's store that a test fills."""

    def __init__(self) -> None:
        self.store: dict[str, Pod] = {}
        self._told: Callable[[Change[Pod]], None] = lambda _: None

    def subscribe(self, told: Callable[[Change[Pod]], None]) -> Callable[[], None]:
        self._told = told
        return lambda: None

    def observe(self, pod: Pod) -> None:
        self.put(pod)

    def put(self, pod: Pod) -> None:
        before = self.store.get(pod.uid)
        self.store[pod.uid] = pod
        self._told(Change("changed" if before else "added", pod, before))

    def drop(self, uid: str) -> None:
        pod = self.store.pop(uid)
        self._told(Change("gone", pod, pod))


def pod(**status: object) -> Pod:
    manifest = pod_manifest("p", uid="uid", limits={"gaia.io/vgpu-memory": "4"})
    manifest["status"].update(status)
    return msgspec.convert(manifest, Pod)


@pytest.fixture
def reflected() -> Reflected:
    return Reflected()


@pytest.fixture
def sight(reflected: Reflected) -> Sight:
    return Sight(reflected)  # type: ignore[arg-type]


def test_not_seen_is_not_gone(sight: Sight, reflected: Reflected) -> None:
    assert sight.life(MAIN) is Life.UNKNOWN
    reflected.put(pod())
    assert sight.life(MAIN) is Life.LIVING
    reflected.drop("uid")
    assert sight.life(MAIN) is Life.ENDED
    assert sight.life(Owner("other", "main")) is Life.UNKNOWN


def test_what_the_server_says_is_not_there_is_gone(sight: Sight, reflected: Reflected) -> None:
    sight.gone("uid")
    assert sight.life(MAIN) is Life.ENDED
    reflected.put(pod())  # a server restored from a backup
    assert sight.life(MAIN) is Life.LIVING


def test_a_container_that_will_not_start_again_has_ended(sight: Sight, reflected: Reflected) -> None:
    reflected.put(pod(containerStatuses=[status_of(terminated={"exitCode": 1})]))
    assert sight.life(MAIN) is Life.LIVING  # it is restarted always
    reflected.put(pod(phase="Failed", containerStatuses=[status_of(terminated={"exitCode": 1})]))
    assert sight.life(MAIN) is Life.ENDED


class Server:
    """Takes annotations, or does not."""

    def __init__(self) -> None:
        self.faults: list[ApiError | None] = []
        self.written: list[str] = []

    async def facts(self) -> NodeFacts:
        raise AssertionError

    async def uids_now(self) -> set[str]:
        return set()

    async def annotate(self, pod: Pod, placement: str) -> Pod | None:
        if self.faults:
            fault = self.faults.pop(0)
            if fault is None:
                return None
            raise fault
        self.written.append(placement)
        metadata = msgspec.structs.replace(pod.metadata, annotations={"gaia.io/placement": placement})
        return msgspec.structs.replace(pod, metadata=metadata)

    async def evict(self, pod: Pod, sentence: str) -> None:
        raise AssertionError

    async def tell(self, pod: Pod, reason: str, sentence: str) -> None:
        raise AssertionError


async def test_what_fails_is_written_again_ever_less_often(sight: Sight, reflected: Reflected) -> None:
    server, now = Server(), 0.0
    publisher = Publisher(sight, server, "node1", "gaia.io", lambda: now)
    given = {"uid": {"main": {"GPU-0": Share(4, 5)}}}
    reflected.put(pod())
    server.faults = [ApiError(503, "Unavailable", "not today")] * 3
    tried = []
    for now in range(12):
        left = len(server.faults)
        assert await publisher.publish(given)
        if len(server.faults) < left:
            tried.append(now)
    assert tried == [0, 1, 3]
    assert len(server.written) == 1
    assert await publisher.publish(given)
    assert len(server.written) == 1


async def test_a_change_of_others_asks_for_another_look(sight: Sight, reflected: Reflected) -> None:
    server = Server()
    server.faults = [None]
    publisher = Publisher(sight, server, "node1", "gaia.io", lambda: 0.0)
    given = {"uid": {"main": {"GPU-0": Share(4, 5)}}}
    assert await publisher.publish(given)  # nobody has seen the pod yet
    assert server.faults == [None]
    reflected.put(pod())
    assert not await publisher.publish(given)
    assert await publisher.publish(given)
    assert len(server.written) == 1
