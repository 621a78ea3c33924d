"""A node's two sockets, asked by programs that mean no good: every wrong shape gets a sentence."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin import paths
from gaia_plugin.api import models, sockets
from gaia_plugin.api.client import ApiRefusal, NodeClient, SlotClient
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB, MEMORY_UNIT
from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.support.kubelet import Pod, until

ROOMY = {"gaia.io/vgpu-max-memory": "12Gi", "gaia.io/vgpu-max-cores": "90"}
CARD = json.dumps(uuid_of(0))

WRONG = [
    # value of memory, status
    ("0", 422),
    ("-1", 422),
    ("-9223372036854775809", 422),
    ("18446744073709551616", 422),
    ("9" * 400, 422),
    ("1.5", 422),
    ("1e3", 422),
    ("8e9", 422),
    ("1e999", 422),
    ("NaN", 400),
    ("-Infinity", 400),
    ("true", 422),
    ("[]", 422),
    ('["8GiB"]', 422),
    ("{}", 422),
    ('{"GiB": 8}', 422),
    ("[[[[[[[[[8]]]]]]]]]", 400),
    ('""', 422),
    ('" "', 422),
    ('"8"', 422),
    ('"GiB"', 422),
    ('"8  GiB"', 422),
    ('" 8GiB"', 422),
    ('"8GiB\\n"', 422),
    ('"8\\u00a0GiB"', 422),
    ('"1e3GiB"', 422),
    ('"0x8GiB"', 422),
    ('"+8GiB"', 422),
    ('"-8GiB"', 422),
    ('"8,5GiB"', 422),
    ('"8.GiB"', 422),
    ('"NaN"', 422),
    ('"\\u0668GiB"', 422),
    ('"\\uff18GiB"', 422),
    ('"8G\\u0131B"', 422),
    ('"8GiB\\u0000"', 422),
    ('"\\ud800"', 400),
    ('"99999999999999999999TiB"', 422),
    ('"65TiB"', 422),
    ('"1KiB"', 422),
    ("08", 400),
    ("'8GiB'", 400),
    ("8GiB", 400),
    ("", 400),
]
WRONG_CORES = [
    "0",
    "-1",
    "1.0",
    "1e1",
    "1000001",
    "[5]",
    "true",
    '""',
    '"\\u0665"',
    '"5 %"',
    '"5%%"',
    '"five"',
]
WRONG_BODIES = [
    ("", 400),
    ("null", 400),
    ("[]", 400),
    ('"8GiB"', 400),
    ("{}", 400),
    ('{"memory": null}', 400),
    ('{"memory": null, "cores": null, "cards": null}', 400),
    ('{"memory": "8GiB", "memory": "8GiB"}', 400),
    ('{"memory": "8GiB", "Memory": "9GiB"}', 400),
    ('{"\\ud800": 1}', 400),
    ('{"cards": {}}', 400),
    ('{"cards": []}', 400),
    ('{"cards": {"\\ud800": {"memory": "8GiB"}}}', 400),
    ('{"cards": {"\\ud83d\\ude00": {"memory": "8GiB"}}}', 404),
    ('{"cards": {"GPU-none": {"memory": "8GiB"}}}', 404),
    (f'{{"cards": {{{CARD}: {{}}}}}}', 400),
    (f'{{"cards": {{{CARD}: null}}}}', 400),
    (f'{{"cards": {{{CARD}: {{"memory": "x"}}}}}}', 422),
    (f'{{"cards": {{{CARD}: {{"memory": "8GiB", "memory": "9GiB"}}}}}}', 400),
    (f'{{"cards": {{{CARD}: {{"units": 3}}}}}}', 400),
    (f'{{"cards": {{{CARD}: {{"cores": 101}}}}}}', 422),
    (f'{{"memory": "8GiB", "cards": {{{CARD}: {{"memory": "8GiB"}}}}}}', 400),
    ('{"cores": 101}', 422),
    ('{"memory": "8GiB"}{}', 400),
    ('{"memory": "8GiB",}', 400),
]


class Sockets:
    """Asks for changes of one slot over its own socket and over the operator's."""

    def __init__(self, world: World, pod: Pod) -> None:
        self.slot = world.slot(pod)
        self.own = world.agent.core.directory(self.slot) / paths.SLOT_SOCKET
        self.operators = paths.operator_socket(world.state)

    @property
    def places(self) -> tuple[tuple[Path, str], ...]:
        return (self.own, "/v1/slot"), (self.operators, f"/v1/slots/{self.slot}")

    async def patch(self, place: tuple[Path, str], body: str, **headers: str) -> tuple[int, Any]:
        return await asyncio.to_thread(self._patch, place, body, headers)

    def _patch(self, place: tuple[Path, str], body: str, headers: dict[str, str]) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("gaia", timeout=60)
        try:
            connection.sock = sockets.connect(place[0], 60)
            connection.request("PATCH", place[1], body.encode(), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.headers["Content-Type"] == (
            "application/json" if answer.status < 400 else "application/problem+json"
        )
        return answer.status, json.loads(content)


@pytest.fixture
async def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> Sockets:
    from gaia_plugin.api import pace

    # this is about shapes: nothing is refused for its number
    monkeypatch.setattr(pace, "requests", lambda: pace.RateLimit(10**9, "Never."))
    monkeypatch.setattr(pace, "resizes", lambda: pace.RateLimit(10**9, "Never."))
    return Sockets(world, await world.run(Pod.of({MEMORY: 16, CORES: 25}, annotations=ROOMY)))


async def test_an_amount_of_a_wrong_shape_is_a_sentence_on_both_sockets(world: World, asked: Sockets) -> None:
    before = world.records()
    rows = [(f'{{"memory": {value}}}', status) for value, status in WRONG]
    rows += [(f'{{"cores": {value}}}', 422) for value in WRONG_CORES]
    rows += WRONG_BODIES
    for place in asked.places:
        for body, expected in rows:
            status, problem = await asked.patch(place, body)
            assert status == expected, (place, body, problem)
            assert problem["detail"].endswith((".", "?")), body
            assert len(problem["detail"]) < 400, body
            assert problem["code"] in ("invalid_amount", "bad_request", "no_such_card"), body
    assert world.records() == before
    assert world.agent.node.connections == 0 or world.agent.core.ledger.overbooked() == {}


@pytest.mark.parametrize(
    ("body", "memory", "cores"),
    [
        ('{"memory": "8 GB"}', 30 * MEMORY_UNIT, 25),  # 8,000,000,000 bytes, rounded up to units
        ('{"memory": "8GiB"}', 8 * GIB, 25),
        ('{"memory": 8589934592}', 8 * GIB, 25),
        ('{"memory": "1.5 gib", "cores": "30%"}', 6 * MEMORY_UNIT, 30),
        ('{"memory": null, "cores": 30}', 4 * GIB, 30),
    ],
)
async def test_an_amount_of_a_right_shape_is_taken_on_both_sockets(
    asked: Sockets, body: str, memory: int, cores: int
) -> None:
    for place in asked.places:
        status, answer = await asked.patch(place, body)
        assert (status, answer["slot"]["granted"]) == (200, {"memory": memory, "cores": cores})
        await asked.patch(asked.places[1], '{"memory": "4GiB", "cores": 25}')


async def test_a_stale_change_is_told_the_slot_as_it_stands_on_both_sockets(asked: Sockets) -> None:
    for number, place in enumerate(asked.places):
        size = f"{5 + number}GiB"
        _, answer = await asked.patch(place, f'{{"memory": "{size}"}}')
        generation = answer["slot"]["generation"]
        status, problem = await asked.patch(
            place, '{"memory": "9GiB"}', **{"If-Match": f'"{generation - 1}"'}
        )
        assert (status, problem["code"]) == (412, "stale")
        assert problem["current"]["generation"] == generation
        assert problem["current"]["granted"]["memory"] == (5 + number) * GIB
        status, _ = await asked.patch(place, f'{{"memory": "{size}"}}', **{"If-Match": f'"{generation}"'})
        assert status == 200


async def test_a_slot_that_ends_in_the_middle_ends_its_stream_and_answers_the_rest(
    world: World, asked: Sockets
) -> None:
    pod = world.kubelet.pods[0]
    client = SlotClient(asked.own)
    stream = await asyncio.to_thread(client.events)
    seen: list[models.Slot] = []
    reading = asyncio.create_task(asyncio.to_thread(lambda: seen.extend(stream)))
    open_before = sockets.connect(asked.own, 60)
    await until(lambda: world.agent.node.connections >= 2)
    await world.delete(pod)
    await until(lambda: not world.records())
    await reading  # ends by itself
    assert await asyncio.to_thread(open_before.recv, 100) == b""
    open_before.close()
    operator = NodeClient(asked.operators)
    for ask in (
        client.slot,
        lambda: operator.resize(asked.slot, memory="8GiB"),
        lambda: client.resize(memory="1GiB"),
    ):
        with pytest.raises(Refusal) as refused:
            await asyncio.to_thread(ask)
        assert refused.value.code in (Code.UNAVAILABLE, Code.NO_SUCH_SLOT)
        assert refused.value.sentence.endswith(".")


async def test_changes_under_way_while_the_pod_ends_are_all_answered(world: World, asked: Sockets) -> None:
    pod, ended = world.kubelet.pods[0], threading.Event()
    answers: list[int] = []

    def change(place: tuple[Path, str], number: int) -> None:
        """Resize over one connection until it ends with its slot, or there is no slot."""
        connection = http.client.HTTPConnection("gaia", timeout=60)
        connection.sock = sockets.connect(place[0], 60)
        while not ended.is_set():
            try:
                connection.request("PATCH", place[1], f'{{"memory": "{4 + number}GiB"}}')
                answer = connection.getresponse()
                problem = json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                break
            assert answer.status < 400 or problem["detail"].endswith(".")
            answers.append(answer.status)
        connection.close()

    changing = [
        asyncio.create_task(asyncio.to_thread(change, place, number))
        for number, place in enumerate(asked.places)
    ]
    await until(lambda: len(answers) > 4)
    await world.delete(pod)
    await until(lambda: not world.records())
    ended.set()
    await asyncio.gather(*changing)
    assert 200 in answers
    assert set(answers) <= {200, 404, 409, 412, 503}
    assert (await asked.patch(asked.places[1], '{"memory": "8GiB"}'))[0] == 404


async def test_a_grow_that_waits_for_the_cluster_is_answered_when_its_pod_ends(
    world: World, asked: Sockets
) -> None:
    pod = world.kubelet.pods[0]
    held = world.kube.hold_back(
        match=lambda asked: asked.method == "PUT" and "/gpunodes/" in asked.path, patient=True
    )
    grow = asyncio.create_task(asked.patch(asked.places[0], '{"memory": "9GiB"}'))
    await until(lambda: held.waiting)
    await world.delete(pod)
    await until(lambda: not world.records())  # what was booked for the grow went with the rest
    held.deliver()
    status, problem = await grow
    assert (status, problem["code"]) == (404, "no_such_slot")


# -- explain


async def test_a_pod_that_waits_is_explained_over_the_operators_socket(world: World) -> None:
    world.agent.node.admission.patience = 0.0
    world.cards.sizes = [16384] * 2
    await world.agent.sync()
    await until(lambda: len(world.kubelet.devices.endpoints[MEMORY].healthy) == 128)
    large = [await world.run(Pod.of({MEMORY: 40, CORES: 60}, f"large-{number}")) for number in range(2)]
    waits = Pod.of({MEMORY: 32, CORES: 50}, "waits")
    world.show(waits)
    assert await world.kubelet.admit(waits)  # there are as many devices, though not on one card
    client = NodeClient(paths.operator_socket(world.state))
    assert not await world.kubelet.start(waits)
    told = await asyncio.to_thread(client.explain, "default/waits")
    (container,) = told.containers
    assert container.state == "waiting"
    assert container.refused is not None
    assert container.refused.code == "card_full"
    assert "largest free slice is 6 GiB and 40 % compute" in container.sentence
    assert "deleted in 1" in container.sentence
    assert [card.lacks for card in container.cards] == [models.Amounts(memory=2 * GIB, cores=10)] * 2
    holders = {holder.name for card in container.cards for holder in card.holders}
    assert holders == {"default/large-0:main", "default/large-1:main"}
    await world.delete(large.pop())
    await world.kubelet.until_running(waits)
    world.report(waits)
    told = await asyncio.to_thread(client.explain, "default/waits")
    assert told.containers[0].state == "applied"
    assert told.containers[0].refused is not None  # it was, once
    for pod in (waits, *large):
        await world.delete(pod)
    await world.empty()


@pytest.mark.parametrize(
    "pod", ["default/none", "none", "", "a/b/c", "Default/None", "a" * 400 + "/b", "../x"]
)
async def test_a_pod_that_nobody_knows_is_a_sentence(world: World, pod: str) -> None:
    client = NodeClient(paths.operator_socket(world.state))
    with pytest.raises(ApiRefusal) as refused:
        await asyncio.to_thread(client.explain, pod)
    known = pod == "default/none"
    assert refused.value.problem.status == (404 if known or pod == "../x" else 400)
    assert refused.value.sentence.endswith(".")
