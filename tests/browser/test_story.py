"""The whole road, as its users walk it: `gaia demo`, a real hub, a real browser, simulated cards.

The tests of this file follow one another and share one demo. With GAIA_PICTURES naming a directory
the pictures of the documentation are taken on the way.
"""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from gaia_plugin.api.models import NewSlot
from tests.browser.axe import violations
from tests.browser.hub_page import Visitor
from tests.support.demo import Demo, until

GIB = 2**30
CONTEXT = 300 * 2**20
LOOK, FILL, PANEL, GROW, SAME = 2, 4, 6, 8, 10  # cells of notebooks/first-slice.ipynb


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    demo = Demo(tmp_path_factory.mktemp("demo"), port)
    yield demo
    demo.end()


@pytest.fixture(scope="module")
def ann(browser: Browser, demo: Demo) -> Iterator[Visitor]:
    visitor = Visitor(browser, demo, "ann")
    yield visitor
    visitor.close()
    assert visitor.errors == []
    assert visitor.foreign == []


@pytest.fixture(scope="module")
def bob(browser: Browser, demo: Demo) -> Iterator[Visitor]:
    visitor = Visitor(browser, demo, "bob")
    yield visitor
    visitor.close()
    assert visitor.errors == []
    assert visitor.foreign == []


@pytest.fixture(scope="module")
def pictures() -> Path | None:
    named = os.environ.get("GAIA_PICTURES")
    return Path(named) if named else None


def kernel_of(text: str) -> int:
    found = re.search(r"process (\d+)", text)
    assert found, text
    return int(found.group(1))


def test_the_spawn_page_shows_what_is_free_and_starts_a_small_slice(
    demo: Demo, ann: Visitor, pictures: Path | None
) -> None:
    ann.spawn_page()
    expect(ann.page.get_by_text("23.5 GiB of 23.5 GiB free")).to_have_count(2)
    assert violations(ann.page, ".gaia") == []
    ann.picture(pictures and pictures / "spawn-page.png")
    ann.start("Small")
    slot = demo.slot("ann")
    assert slot is not None
    assert (slot.granted.memory, slot.granted.cores) == (4 * GIB, 25)


def test_the_notebook_fills_the_slice_and_the_kernel_lives(demo: Demo, ann: Visitor) -> None:
    ann.open("notebooks/first-slice.ipynb")
    ann.run(LOOK)
    assert "The slice has 4 GiB" in ann.says(LOOK)
    ann.run(FILL)
    assert "CUDA_ERROR_OUT_OF_MEMORY (error 2)" in ann.says(FILL)
    assert "3.5 GiB in 14 blocks" in ann.says(FILL)  # 300 MiB of the 4 GiB are the context's
    assert kernel_of(ann.says(LOOK)) == kernel_of(ann.says(FILL))


def test_the_panel_grows_the_slice_while_a_cell_is_running(
    demo: Demo, ann: Visitor, pictures: Path | None
) -> None:
    ann.run(PANEL)
    panel = ann.panel()
    panel.figures("4 GiB granted")
    if pictures is None:  # the cell asks by itself after 20 s: by its clock they never pass
        ann.execute("from types import SimpleNamespace")
        ann.execute("time = SimpleNamespace(monotonic=lambda: 0.0, sleep=time.sleep)")
    ann.run(GROW, wait=False)
    until(lambda: "Waiting for memory" in ann.says(GROW))
    panel.memory.fill("8")
    panel.apply.click()
    panel.figures("8 GiB granted")
    until(lambda: "4 more blocks" in ann.says(GROW))
    assert "Nobody used the panel" not in ann.says(GROW)
    ann.run(SAME)
    same = ann.says(SAME)
    assert "14 blocks. Now" in same
    assert "18 blocks" in same
    assert len(set(re.findall(r"process (\d+)", same))) == 1
    panel.root.scroll_into_view_if_needed()
    ann.picture(pictures and pictures / "panel.png", of=".gaia-panel")
    ann.picture(pictures and pictures / "notebook.png")


def test_a_shrink_below_use_drains_and_is_applied_when_memory_is_freed(
    demo: Demo, ann: Visitor, pictures: Path | None
) -> None:
    panel = ann.panel()
    panel.memory.fill("2")
    panel.apply.click()
    panel.says("still in use")
    slot = demo.slot("ann")
    assert slot is not None
    assert slot.state == "draining"
    assert slot.granted.memory == 2 * GIB
    assert slot.held.memory >= 18 * GIB // 4 + CONTEXT
    panel.root.scroll_into_view_if_needed()
    ann.picture(pictures and pictures / "panel-draining.png", of=".gaia-panel")

    refused = ann.add("print(take().name, cuda.cuMemGetInfo()[1])")
    ann.run(refused)
    assert ann.says(refused).split() == ["CUDA_ERROR_OUT_OF_MEMORY", "0"]
    freed = ann.add("while len(blocks) > 4:\n    ask(cuda.cuMemFree(blocks.pop()))\nprint(take().name)")
    ann.run(freed)
    assert ann.says(freed).split() == ["CUDA_SUCCESS"]  # 1 GiB + 300 MiB + 256 MiB of 2 GiB

    def applied() -> bool:
        slot = demo.slot("ann")
        return slot is not None and slot.state == "applied" and slot.held.memory == 2 * GIB

    until(applied)
    panel.figures("2 GiB granted")


def test_a_second_user_is_refused_with_the_free_amount_named(
    demo: Demo, ann: Visitor, bob: Visitor, pictures: Path | None
) -> None:
    panel = ann.panel()
    panel.memory.fill("20")
    panel.apply.click()
    panel.figures("20 GiB granted")

    bob.spawn_page()
    expect(bob.page.get_by_text("3.5 GiB of 23.5 GiB free", exact=True)).to_be_visible()
    bob.start("Whole card")  # the other card
    slot = demo.slot("bob")
    assert slot is not None
    assert slot.granted.memory == 94 * GIB // 4

    bob.page.goto(f"{demo.url}/hub/home")
    bob.page.get_by_role("button", name="Stop My Server").click()
    until(lambda: demo.slot("bob") is None)
    bob.spawn_page()
    bob.choose("Own numbers")
    bob.page.get_by_label("Memory in GiB").fill("23.5")
    bob.page.get_by_label("Compute in percent").fill("50")
    # somebody else is faster: the second card fills up under bob's open page
    made = demo.node.make(NewSlot(owner="carol", memory="12GiB", cores=50, process=os.getpid()))
    bob.submit()
    expect(bob.page.locator("body")).to_contain_text("11.5 GiB")
    assert demo.slot("bob") is None
    bob.spawn_page()
    whole = bob.page.get_by_role("radio", name="Whole card")
    expect(whole).to_be_disabled()
    expect(bob.page.locator("#gaia-option-card-about")).to_contain_text("11.5 GiB")
    assert violations(bob.page, ".gaia") == []
    bob.picture(pictures and pictures / "spawn-page-busy.png")
    demo.node.release(made.slot.slot)


def test_the_panel_offers_what_would_work_when_the_card_is_full(
    demo: Demo, ann: Visitor, pictures: Path | None
) -> None:
    slot = demo.slot("ann")
    assert slot is not None
    card = slot.cards[0].uuid
    panel = ann.panel()
    panel.memory.fill("12")
    panel.apply.click()
    panel.figures("12 GiB granted")
    # a neighbour on ann's card: fill the other one first, so that placement has no choice
    whole = demo.node.make(NewSlot(owner="dan", memory="23.5GiB", cores=100, process=os.getpid()))
    neighbour = demo.node.make(NewSlot(owner="eve", memory="4GiB", cores=25, process=os.getpid()))
    assert neighbour.slot.cards[0].uuid == card
    panel.figures("19.5 GiB possible now")
    panel.memory.fill("23.5")
    panel.apply.click()
    expect(panel.offer).to_have_text(re.compile("19.5 GiB"))
    panel.root.scroll_into_view_if_needed()
    ann.picture(pictures and pictures / "panel-refused.png", of=".gaia-panel")
    panel.offer.click()
    panel.figures("19.5 GiB granted")
    demo.node.release(neighbour.slot.slot)
    demo.node.release(whole.slot.slot)


def test_the_slot_comes_back_when_the_server_stops_and_when_it_is_killed(
    demo: Demo, ann: Visitor, bob: Visitor
) -> None:
    until(lambda: len(demo.node.slots()) == 1)
    ann.page.goto(f"{demo.url}/hub/home")
    ann.page.get_by_role("button", name="Stop My Server").click()
    until(lambda: demo.slot("ann") is None)

    bob.spawn_page()
    bob.start("Medium")
    bob.open("notebooks/first-slice.ipynb")
    bob.run(LOOK)
    bob.run(FILL)
    kernel = kernel_of(bob.says(FILL))
    (server,) = servers_above(kernel)
    os.kill(server, signal.SIGKILL)
    until(lambda: demo.slot("bob") is None)
    until(lambda: not Path(f"/proc/{kernel}").exists())
    until(lambda: all(card.free.memory == 94 * GIB // 4 for card in demo.node.cards()))


def servers_above(kernel: int) -> list[int]:
    """Return the single-user server that a kernel was started by."""
    stat = Path(f"/proc/{kernel}/stat").read_text()
    parent = int(stat.rpartition(")")[2].split()[1])
    return [parent] if b"singleuser" in Path(f"/proc/{parent}/cmdline").read_bytes() else []


def test_control_c_ends_everything(demo: Demo) -> None:
    assert demo.end() == 0
    assert "nothing is left" in demo.output
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"GAIA_STATE={demo.state}".encode() in environ.split(b"\0"):
                left.append(entry.name)
    assert left == []
