"""A real hub in a process of its own, and a person with a browser's cookies."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests

from gaia_hub.embedded import processes
from gaia_hub.embedded.settings import ENVIRONMENT, HubSettings
from gaia_hub.embedded.supervisor import config_file
from tests.support.demo import until

PASSWORD = "correct-horse-battery"
PATIENCE = 120.0
"""Seconds that an answer may take; never looked at where one comes."""
PATIENT = """
c.GaiaLocalSpawner.start_timeout = c.GaiaLocalSpawner.http_timeout = c.GaiaLocalSpawner.agent_timeout = 120
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Hub:
    """`python -m jupyterhub` with the embedded configuration."""

    def __init__(self, directory: Path, agent_socket: Path, extra_config: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        settings = HubSettings(
            directory=str(directory),
            port=free_port(),
            hub_port=free_port(),
            password=PASSWORD,
            agent_socket=str(agent_socket),
        )
        config = directory / "config.py"
        config.write_text(f"{config_file().read_text()}\n{PATIENT}\n{extra_config}\n")
        self.url = f"http://127.0.0.1:{settings.port}"
        self.homes = directory / "homes"
        self.log = directory / "hub.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(config)],
                cwd=directory,
                env={**os.environ, ENVIRONMENT: str(settings.write()), "GAIA_TEST": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=processes.die_with_parent(),
            )
        try:
            until(self._is_up)
        except BaseException:
            self.close()
            raise

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return requests.get(f"{self.url}/hub/login", timeout=20).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        finally:
            self.process.kill()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Person:
    """Somebody who is logged in."""

    def __init__(self, url: str, name: str, password: str = PASSWORD) -> None:
        self.url, self.name, self.password = url, name, password
        self.web = requests.Session()
        self.web.get(f"{url}/hub/login", timeout=PATIENCE)
        answer = self.web.post(
            f"{url}/hub/login",
            params={"_xsrf": self.xsrf(), "next": "/hub/home"},
            data={"username": name, "password": password},
            timeout=PATIENCE,
        )
        assert answer.url.endswith("/hub/home"), (answer.status_code, answer.url)
        self.token = ""

    def xsrf(self) -> str:
        return next(cookie.value or "" for cookie in self.web.cookies if cookie.name == "_xsrf")

    def page(self, path: str = "/hub/spawn", **query: str) -> requests.Response:
        return self.web.get(self.url + path, params=query, timeout=PATIENCE)

    def submit(self, **fields: Any) -> requests.Response:
        """Send the spawn form as a browser does."""
        return self.web.post(
            f"{self.url}/hub/spawn/{self.name}",
            params={"_xsrf": self.xsrf()},
            files={key: (None, value) for key, value in fields.items()},
            timeout=PATIENCE,
            headers={"Referer": f"{self.url}/hub/spawn"},
        )

    def api(self, method: str, path: str, body: object = None, **options: Any) -> requests.Response:
        """Call the hub's REST API with this person's token."""
        if not self.token:
            made = requests.post(
                f"{self.url}/hub/api/users/{self.name}/tokens",
                json={"auth": {"username": self.name, "password": self.password}},
                timeout=PATIENCE,
            )
            self.token = made.json()["token"]
        return requests.request(
            method,
            f"{self.url}/hub/api{path}",
            json=body,
            headers={"Authorization": f"token {self.token}"},
            timeout=PATIENCE,
            **options,
        )

    def server(self) -> dict[str, Any]:
        """Return the hub's view of the default server; empty if there is none."""
        return dict(self.api("GET", f"/users/{self.name}").json()["servers"].get("", {}))

    def wait_ready(self) -> None:
        until(lambda: self.server().get("ready"))

    def stop(self) -> None:
        self.api("DELETE", f"/users/{self.name}/server")
        until(lambda: not self.server())


def went_by(answer: requests.Response, path: str) -> bool:
    """Tell whether a page was on the way; a server may be ready before its waiting page is asked for."""
    return any(path in each.url for each in (*answer.history, answer))


def error_on(page: requests.Response) -> str:
    """Return the message of a refused spawn form."""
    from bs4 import BeautifulSoup

    alert = BeautifulSoup(page.text, "html5lib").select_one(".spawn-error-msg")
    return "" if alert is None else re.sub(r"\s+", " ", alert.get_text()).strip().removeprefix("Error: ")


def environment(pid: int) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in Path(f"/proc/{pid}/environ").read_text().split("\0") if pair)
    return {key: value for key, _, value in pairs}


def server_processes(homes: Path, person: Person) -> list[int]:
    """Return the processes of a person's server, oldest first.

    By their home, because other hubs on this machine may have people of the same name.
    """
    pids = processes.marked("HOME", str(homes / person.name))
    return sorted(pids, key=lambda pid: (processes.start_time(pid) or 0, pid))


def server_pid(homes: Path, person: Person) -> int:
    """Return the pid of a person's server."""
    return server_processes(homes, person)[0]


def start_kernel(homes: Path, person: Person) -> int:
    """Start a kernel in a person's server and return its pid."""
    server = server_pid(homes, person)
    person.page(f"/user/{person.name}/lab")
    xsrf = next(
        c.value for c in person.web.cookies if c.name == "_xsrf" and c.path == f"/user/{person.name}/"
    )
    made = person.web.post(
        f"{person.url}/user/{person.name}/api/kernels",
        json={"name": "python3"},
        headers={"X-XSRFToken": xsrf or ""},
        timeout=PATIENCE,
    )
    assert made.status_code == 201, made.text
    kernels = until(lambda: [pid for pid in server_processes(homes, person) if pid != server])
    return kernels[0]
