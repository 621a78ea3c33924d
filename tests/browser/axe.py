"""axe-core on a part of a page: WCAG 2.0 and 2.1, levels A and AA."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}

_axe = Axe()


def violations(page: Page, part: str) -> list[str]:
    """Return what axe-core finds wrong within `part` (a CSS selector that something matches), a line each."""
    assert page.locator(part).count() > 0, part
    found = _axe.run(page, context=part, options=RULES).response
    assert found["passes"], "no rule had anything to look at"
    return [
        f"{rule['id']}: {node['html']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
