"""JupyterLab with a panel in a real Chromium: what the tests do with it, and what they look at."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from tests.unit.server.jupyter_process import TOKEN, Jupyter

OPEN = "() => Boolean(window.jupyterapp?.shell.currentWidget?.sessionContext)"
READY = """async () => {
    const {context, sessionContext} = window.jupyterapp.shell.currentWidget;
    await context.ready; await sessionContext.ready; await sessionContext.session.kernel.info;
}"""

RUN = """([index, wait]) => {
    const app = window.jupyterapp;
    app.shell.currentWidget.content.activeCellIndex = index;
    const done = app.commands.execute('notebook:run-cell');
    return wait ? done.then(() => true) : true;
}"""

PANEL_CELL = "from gaia_hub.panel import Panel\nPanel()"
BUSY_CELL = """import time
from pathlib import Path
end = time.monotonic() + 600
while not Path("stop").exists() and time.monotonic() < end:
    time.sleep(0.05)
Path("stop").unlink(missing_ok=True)
print("the cell has ended")"""

NO_SLICE_CELL = """import os
named = os.environ.pop("GAIA_SLOT_SOCKET")
panel = Panel()
os.environ["GAIA_SLOT_SOCKET"] = named
panel"""

CONTRAST = """element => {
    const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
    const luminance = colors => {
        context.fillStyle = "white";
        context.fillRect(0, 0, 1, 1);
        for (const color of colors) { context.fillStyle = color; context.fillRect(0, 0, 1, 1); }
        const linear = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map(value => value / 255)
            .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const pair = [luminance(layers), luminance([...layers, getComputedStyle(element).color])];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}"""


class Lab:
    """A notebook open in Lab. `errors` and `foreign` must stay empty."""

    def __init__(self, browser: Browser, server: Jupyter, home: Path, cells: list[str]) -> None:
        self.home = home
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.asked: list[str] = []
        self._own = f"http://127.0.0.1:{server.port}/"
        cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = {
            "cells": [{**cell, "id": f"cell-{number}", "source": text} for number, text in enumerate(cells)],
            "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5,
        }  # fmt: skip
        (home / "panel.ipynb").write_text(json.dumps(notebook))
        self.context = browser.new_context(viewport={"width": 1200, "height": 900})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.goto(f"{server.url}doc/tree/panel.ipynb?token={TOKEN}")
        self.page.wait_for_function(OPEN)
        self.page.evaluate(READY)

    def _console(self, message: Any) -> None:
        # Chromium itself writes a line for every answer of 400 and more; those are answers, not faults
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def _request(self, request: Any) -> None:
        if "/gaia/api/" in request.url:
            self.asked.append(f"{request.method} {request.url.partition('/gaia/api/')[2]}")
        if not request.url.startswith((self._own, "data:", "blob:")):
            self.foreign.append(request.url)

    def run(self, index: int, *, wait: bool = True) -> None:
        """Run a cell; without `wait` it goes on running."""
        self.page.evaluate(RUN, [index, wait])

    def panel(self, number: int = 0) -> Panel:
        """Return a panel on the page, once it shows the slot."""
        panel = Panel(self.page.locator(".gaia-panel").nth(number))
        expect(panel.root).to_be_visible()
        return panel

    def clear(self) -> None:
        """Clear all outputs, which takes the panels off the page, and the record of requests."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
        expect(self.page.locator(".gaia-panel")).to_have_count(0)
        self.asked.clear()

    def theme(self, name: str) -> None:
        """Switch Lab's theme."""
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name
        )
        light = "false" if "Dark" in name else "true"
        expect(self.page.locator("body")).to_have_attribute("data-jp-theme-light", light)

    def close(self) -> None:
        """Close the page."""
        self.context.close()


class Panel:
    """The controls of one panel, found as assistive technology finds them."""

    def __init__(self, root: Locator) -> None:
        self.root = root
        self.state = root.locator(".gaia-state")
        self.said = root.get_by_role("status")
        self.memory = root.get_by_role("spinbutton", name="Memory")
        self.cores = root.get_by_role("spinbutton", name="Compute share")
        self.slider = root.get_by_role("slider", name="Memory, slider")
        self.apply = root.get_by_role("button", name="Apply")
        self.offer = root.get_by_role("button", name=re.compile("^Use .* instead$"))

    def figures(self, text: str) -> None:
        """Wait until the memory's figures say `text`."""
        expect(self.root.locator(".gaia-figures").first).to_contain_text(text)

    def says(self, text: str) -> None:
        """Wait until the live region says `text`."""
        expect(self.said).to_contain_text(text)

    def contrast(self, part: str) -> float:
        """Return the contrast (WCAG 2, 1 to 21) of the text in `part` with what is behind it."""
        return float(self.root.locator(part).first.evaluate(CONTRAST))
