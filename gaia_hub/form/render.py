"""HTML of the spawn page. Everything is escaped by the template engine; nothing is marked safe
but the style sheet and the script that lie beside this file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from gaia_hub.form.view import Page

_HERE = Path(__file__).parent


@lru_cache(maxsize=1)
def _template() -> tuple[Template, Markup, Markup]:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup((_HERE / "form.css").read_text())  # noqa: S704  our own file
    script = Markup((_HERE / "form.js").read_text())  # noqa: S704  our own file
    return environment.get_template("form.html"), style, script


def render_page(page: Page) -> str:
    """Return the HTML that goes inside JupyterHub's spawn form."""
    template, style, script = _template()
    return template.render(page=page, style=style, script=script)
