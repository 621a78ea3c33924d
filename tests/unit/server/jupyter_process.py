"""A real Jupyter server in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = "a-token-for-tests"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> dict[str, object]:
        """Return the body as JSON."""
        return json.loads(self.text)


@dataclass
class Jupyter:
    """A running server. `cookies` are those of somebody who signed in with the browser."""

    port: int
    base: str
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the server's address with its base URL."""
        return f"http://127.0.0.1:{self.port}{self.base}"

    @contextmanager
    def open(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and give the response, its body unread. Bytes are sent as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(connection):
            connection.request(method, self.base + path, payload, named)
            with closing(connection.getresponse()) as response:
                yield response

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send a request as nobody in particular."""
        with self.open(method, path, body, **headers) as response:
            return Answer(response.status, dict(response.getheaders()), response.read().decode())

    def token(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send a request with the token."""
        return self.ask(method, path, body, Authorization=f"token {TOKEN}", **headers)

    def browser(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send a request with the cookies of a browser, and no XSRF header of its own accord."""
        if not self.cookies:
            self._sign_in()
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return self.ask(method, path, body, Cookie=cookie, **headers)

    def _sign_in(self) -> None:
        # the page to sign in sets the cookie of XSRF, signing in that of the session
        for path in ("login", f"login?token={TOKEN}"):
            sent = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            with self.open("GET", path, Cookie=sent) as response:
                headers = response.getheaders()
            for header, value in headers:
                if header.lower() == "set-cookie":
                    name, _, rest = value.partition("=")
                    self.cookies[name] = rest.partition(";")[0]


@contextmanager
def jupyter(
    home: Path, *arguments: str, module: str = "jupyter_server", config: str = "", **environment: str | None
) -> Iterator[Jupyter]:
    """Run `python -m module` with an own home until the block ends; None removes a variable."""
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "jupyter_config.py"
    settings.write_text(config)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {**os.environ, "HOME": str(home), "JUPYTER_RUNTIME_DIR": str(home / "runtime")}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "GAIA_SLOT_SOCKET", "JUPYTERHUB_API_TOKEN"):
        variables.pop(name, None)
    variables.update({name: value for name, value in environment.items() if value is not None})
    command = [
        sys.executable, "-m", module, "--no-browser", "--allow-root", f"--config={settings}",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.base_url=/some/base/",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={home}", *arguments,
    ]  # fmt: skip
    with (home / "log.txt").open("w") as log:
        process = subprocess.Popen(command, env=variables, cwd=home, stdout=log, stderr=log)
    running = Jupyter(port, "/some/base/")
    try:
        _wait(running, process, home / "log.txt")
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(running: Jupyter, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if running.token("GET", "api/status").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"Jupyter did not start:\n{log.read_text()}")
