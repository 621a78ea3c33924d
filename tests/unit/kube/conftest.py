"""An API server at the level of HTTP, a client of it, and a reflector whose pauses are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from gaia_plugin.kube.client import Api
from gaia_plugin.kube.pods import Pod, Pods
from gaia_plugin.kube.reflector import Backoff, Reflector
from tests.support.kubeapi import FakeKubeApi
from tests.support.kubeapi.played import PlayedTime, Start


@pytest.fixture
def kube() -> Iterator[FakeKubeApi]:
    with FakeKubeApi() as server:
        yield server


@pytest.fixture
async def api(kube: FakeKubeApi, tmp_path: Path) -> AsyncIterator[Api]:
    made = await Api.connect(kube.kubeconfig(tmp_path / "kubeconfig"))
    yield made
    await made.close()


@pytest.fixture
def played() -> PlayedTime:
    return PlayedTime()


@pytest.fixture
async def start(api: Api, played: PlayedTime) -> AsyncIterator[Start]:
    """Start reflectors of node1's pods; they end with the test."""
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []

        def begin(
            *, fields: str = "spec.nodeName=node1", page: int = 500, **options: object
        ) -> Reflector[Pod]:
            made = Reflector(
                api,
                Pods(**options),  # type: ignore[arg-type]
                field_selector=fields,
                page=page,
                backoff=Backoff(),
                pause=played.pause,
                clock=played.clock,
            )
            tasks.append(asyncio.create_task(made.run()))
            return made

        @asynccontextmanager
        async def ending() -> AsyncIterator[None]:
            yield
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

        await stack.enter_async_context(ending())
        yield begin
