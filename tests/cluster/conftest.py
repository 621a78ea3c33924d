"""Fixtures: one cluster for all tests of a session, and a second node for a module that asks for it."""

import contextlib
from collections.abc import Generator, Iterator

import pytest

from tests.cluster.agent import NodeAgent
from tests.cluster.build import Missing, tools
from tests.cluster.cluster import Cluster

_STARTED = pytest.StashKey[list[Cluster]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STARTED] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the cluster's programs before the first test, whose time limit is shorter than a build."""
    if session.config.option.collectonly:
        return
    if any("one_node" in getattr(item, "fixturenames", ()) for item in session.items):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        # what is missing is told by each test that misses it
        with capture.global_and_fixture_disabled(), contextlib.suppress(Missing):
            tools()


@pytest.fixture(scope="session")
def one_node(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster with one node; tests take `cluster`, which is empty of pods at each test's start."""
    with Cluster() as running:
        pytestconfig.stash[_STARTED].append(running)
        yield running


@pytest.fixture
def cluster(one_node: Cluster) -> Iterator[Cluster]:
    """The session's cluster; pods of the namespace `default` and programs on nodes end with the test."""
    one_node.alive()
    yield one_node
    one_node.delete_pods()
    for node in one_node.nodes:
        node.machine.stop_guests()


@pytest.fixture(scope="module")
def second_node(one_node: Cluster) -> Iterator[Cluster]:
    """The session's cluster, with one more node for the tests of this module."""
    node = one_node.add_node()
    yield one_node
    one_node.remove_node(node)


@pytest.fixture
def two_nodes(second_node: Cluster, cluster: Cluster) -> Cluster:
    """The session's cluster with two nodes."""
    return cluster


@pytest.fixture(scope="module")
def node_agent(one_node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeAgent]:
    """The agent of the session's first node, for the tests of a module."""
    agent = NodeAgent.on(one_node, one_node.nodes[0], tmp_path_factory.mktemp("agent"))
    yield agent
    one_node.delete_pods()
    agent.remove()


@pytest.fixture
def agent(node_agent: NodeAgent) -> Iterator[NodeAgent]:
    """The agent, which serves; pods of `default` end with the test, and nothing of them may be left."""
    node_agent.cluster.alive()
    if node_agent.program is None or node_agent.program.poll() is not None:
        node_agent.start()
    yield node_agent
    node_agent.cluster.delete_pods()
    node_agent.wait_empty()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell with a failed test what the components said, and keep their logs."""
    report = yield
    if report.failed:
        for running in item.config.stash[_STARTED]:
            running.keep_logs = True
            report.sections.append((f"cluster logs, kept in {running.log_directory}", running.tails()))
    return report
