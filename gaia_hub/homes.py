"""A home directory for each user of a single-machine hub, with the example notebooks in it.

All servers run under one uid, so a home is a matter of order, not of secrecy.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

NOTEBOOKS: Final = "notebooks"
"""The folder in a home into which the examples are copied."""

_COPIED: Final = ".gaia-copied"
_QUIET: Final = ".jupyter/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def home_name(user: str) -> str:
    """Return a directory name for any user name: itself if harmless, else made so with a hash.

    The result has no slash, does not begin with a dot and differs for different users.
    """
    if _PLAIN.fullmatch(user) and "--" not in user:
        return user
    readable = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")[:40] or "user"
    return f"{readable}--{hashlib.sha256(user.encode()).hexdigest()[:12]}"


def example_notebooks() -> Path | None:
    """Return the folder with the example notebooks: of the installed package, or of the source tree."""
    package = Path(__file__).resolve().parent
    for folder in (package / NOTEBOOKS, package.parent / NOTEBOOKS):
        if any(folder.glob("*.ipynb")):
            return folder
    return None


def prepare_home(home: Path) -> None:
    """Make `home` (mode 0700) and copy each example notebook into it once.

    A notebook that the user has changed or deleted is never touched again; one that is new in a
    later version of Gaia is added.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _quiet_news(home / _QUIET)
    source = example_notebooks()
    if source is None:
        return
    target, record = home / NOTEBOOKS, home / _COPIED
    copied: set[str] = set()
    with suppress(OSError):
        copied = set(record.read_text().splitlines())
    fresh = [path for path in sorted(source.glob("*.ipynb")) if path.name not in copied]
    if not fresh:
        return
    target.mkdir(exist_ok=True)
    for path in fresh:
        if not (target / path.name).exists():
            unfinished = target / f".{path.name}.{os.getpid()}"
            shutil.copyfile(path, unfinished)
            unfinished.rename(target / path.name)
    record.write_text("".join(f"{name}\n" for name in sorted(copied | {path.name for path in fresh})))


def _quiet_news(setting: Path) -> None:
    """Keep JupyterLab from asking about news and from looking for updates; the user may change it."""
    if setting.exists():
        return
    setting.parent.mkdir(parents=True, exist_ok=True)
    setting.write_text('{"fetchNews": "false", "checkForUpdates": false}\n')
