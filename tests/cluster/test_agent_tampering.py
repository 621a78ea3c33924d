"""A tenant that hides: what it holds stays booked, whatever it does to its own view of the machine."""

import time

import pytest

from gaia_plugin.units import GIB, MIB
from tests.cluster.agent import NodeAgent, said, sliced_pod
from tests.cluster.polling import until

HIDE = {
    "in the open": "",
    "behind another root": 'os.makedirs("/dev/shm/r/run/gaia"); os.chroot("/dev/shm/r")',
    "behind an empty usage page": 'open("/run/gaia/usage", "r+b").write(bytes(1 << 20))',
}


@pytest.mark.parametrize("how", HIDE)
def test_what_a_tenant_holds_stays_booked(agent: NodeAgent, how: str) -> None:
    code = f"""
card = Card()
say(take=card.take(3 << 30))
{HIDE[how]}
say(hidden=True)
stay()
"""
    agent.cluster.apply(sliced_pod("sly", code, 16, 25))
    pod = agent.cluster.wait("sly", timeout=120)
    until("it has hidden", lambda: said(agent.cluster, "sly")[1:] == [{"hidden": True}], 60)
    assert said(agent.cluster, "sly")[0] == {"take": 0}
    agent.socket(pod).resize(memory="256MiB")
    # the driver is asked again and again: it must never be believed that nothing is in use
    for _ in range(25):
        time.sleep(0.2)
        slot = agent.slot(pod)
        assert slot.held.memory >= 3 * GIB, slot.message
        assert slot.granted.memory == 256 * MIB
    free = [card.free.memory for card in agent.operator.cards() if card.slots]
    assert free == [card.total.memory - slot.held.memory for card in agent.operator.cards() if card.slots]
