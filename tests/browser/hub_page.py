"""A person in a real Chromium on a real hub: the spawn page, a notebook, its cells."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.panel.lab import OPEN, READY, RUN, Panel
from tests.support.demo import Demo, until

CELL = """index => {
    const cell = window.jupyterapp.shell.currentWidget.content.widgets[index];
    const outputs = cell.model.outputs.toJSON();
    return outputs.map(o => o.text ?? (o.evalue ? `${o.ename}: ${o.evalue}` : "")).flat().join("");
}"""
EXECUTE = """source => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
    .requestExecute({code: source, silent: true}).done.then(reply => {
        if (reply.content.status !== "ok") throw new Error(JSON.stringify(reply.content));
    })"""
ADD = """source => {
    const panel = window.jupyterapp.shell.currentWidget, model = panel.content.model.sharedModel;
    model.insertCell(model.cells.length, {cell_type: "code", source});
    return model.cells.length - 1;
}"""


class Visitor:
    """Somebody with a browser of their own. `errors` and `foreign` must stay empty."""

    def __init__(self, browser: Browser, demo: Demo, name: str) -> None:
        self.demo, self.name = demo, name
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.context = browser.new_context(viewport={"width": 1200, "height": 1000})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._request)
        self.page.goto(f"{demo.url}/hub/login")
        self.page.get_by_label("Username").fill(name)
        self.page.get_by_label("Password").fill(demo.password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(re.compile("/hub/(spawn|home)"))

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.demo.url, "data:", "blob:")):
            self.foreign.append(request.url)

    def spawn_page(self) -> None:
        """Open the spawn page, once a server that is stopping has stopped."""

        def shown() -> bool:
            self.page.goto(f"{self.demo.url}/hub/spawn")
            return self.page.get_by_text("Choose your slice of a GPU").is_visible()

        until(shown)

    def choose(self, profile: str) -> None:
        """Click a profile of the spawn page."""
        self.page.locator(".gaia-option-label").filter(has_text=profile).click()
        expect(self.page.get_by_role("radio", name=profile)).to_be_checked()

    def submit(self) -> None:
        """Press the spawn page's button."""
        self.page.locator("#spawn_form [type=submit]").click()

    def start(self, profile: str) -> None:
        """Pick a profile on the spawn page and wait for JupyterLab."""
        self.choose(profile)
        self.submit()
        self.page.wait_for_url(re.compile(f"/user/{self.name}/lab"))

    def open(self, notebook: str) -> None:
        """Open a notebook in Lab, its kernel ready."""
        self.page.goto(f"{self.demo.url}/user/{self.name}/doc/tree/{notebook}")
        self.page.wait_for_function(OPEN)
        self.page.evaluate(READY)

    def run(self, index: int, *, wait: bool = True) -> None:
        """Run a cell; without `wait` it goes on running."""
        self.page.evaluate(RUN, [index, wait])

    def execute(self, source: str) -> None:
        """Let the kernel do something without a cell."""
        self.page.evaluate(EXECUTE, source)

    def says(self, index: int) -> str:
        """Return the text that a cell has printed so far, or its error."""
        return str(self.page.evaluate(CELL, index))

    def add(self, source: str) -> int:
        """Append a cell and return its index."""
        return int(self.page.evaluate(ADD, source))

    def panel(self) -> Panel:
        """Return the panel, once it is on the page."""
        panel = Panel(self.page.locator(".gaia-panel").first)
        expect(panel.root).to_be_visible()
        return panel

    def picture(self, path: Path | None, *, of: str | None = None) -> None:
        """Take a picture of the page, or of a part of it."""
        if path is not None:
            (self.page.locator(of).first if of else self.page).screenshot(path=path)

    def close(self) -> None:
        """Close the browser's window."""
        self.context.close()
