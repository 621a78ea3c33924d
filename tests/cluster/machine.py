"""A machine of a test cluster: private pid, mount, network, host name, IPC and cgroup namespaces.

It ends with the process that started it, whatever happens to that: the kernel kills `unshare`, that kills
the machine's first process, and with it every process inside, every mount and every interface.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.build import HERE, Tools
from tests.cluster.cgroups import Cgroup
from tests.cluster.polling import until
from tests.cluster.program import Program, child_of

# joins the cgroups whose files come first, then runs the rest
_JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1"; shift; done; shift; exec "$@"'
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


class Machine:
    """Namespaces around a few folders; `directory` keeps its files over a reboot."""

    def __init__(self, name: str, directory: Path, logs: Path, tools: Tools):
        self.name = name
        self.directory = directory
        self.logs = logs
        self.tools = tools
        self.components: dict[str, Program] = {}
        self.guests: list[Program] = []
        self.cgroup = Cgroup(f"{directory.parent.name}-{name}")
        self._unshare: subprocess.Popen[bytes] | None = None
        self.pid = 0
        for folder in ("var", "var.work", "etc", "etc.work", "containerd"):
            (directory / folder).mkdir(parents=True)

    def power_on(self) -> None:
        """Make the namespaces, and in them the file system and a loopback interface."""
        self.cgroup.make()
        up = self.directory / "up"
        up.unlink(missing_ok=True)
        namespaces = ("unshare", "-m", "-n", "-u", "-i", "-p", "-C", "--fork", "--kill-child", "--mount-proc")
        script = ("sh", str(HERE / "machine.sh"), self.name, str(self.directory), str(self.tools.pause))
        log = self.logs / f"{self.name}.log"
        with log.open("ab") as output:
            self._unshare = subprocess.Popen(
                self._joined([*_DIE_WITH_PARENT, *namespaces, *script, *self.cgroup.v1]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PATH": self.tools.path},
                start_new_session=True,
            )
        until(f"machine {self.name} is up; its output is in {log}", lambda: self._ended() or up.exists(), 30)
        if self._ended():
            raise RuntimeError(f"machine {self.name} did not come up: {log.read_text()[-2000:]}")
        self.pid = child_of(self._unshare.pid)
        self.cgroup.settle()

    def _ended(self) -> bool:
        return self._unshare is None or self._unshare.poll() is not None

    def power_off(self) -> None:
        """Kill everything inside at once, as a loss of power does; files stay, `/run` does not."""
        if self._unshare is None:
            return
        if self._unshare.poll() is None:
            self._unshare.kill()
        self._unshare.wait()
        for program in (*self.components.values(), *self.guests):
            program.process.wait()
        self.components.clear()
        self.guests.clear()
        until(f"no process is left in {self.name}", lambda: not self.cgroup.processes(), 30)
        self.cgroup.remove()
        self._unshare, self.pid = None, 0

    def remove(self) -> None:
        """Power off and remove the files."""
        self.power_off()
        shutil.rmtree(self.directory)

    def path(self, inside: str | Path) -> Path:
        """Return where the machine's file `inside` (absolute) is seen from outside, while it runs."""
        return Path(f"/proc/{self.pid}/root") / str(inside).lstrip("/")

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """Return the command that runs `argv` inside, with `/` as its working directory."""
        enter = ("nsenter", "-t", str(self.pid), "-m", "-n", "-u", "-i", "-p", "-C", "--wd=/", "--")
        return self._joined([*enter, *_DIE_WITH_PARENT, *map(str, argv)])

    def _joined(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", _JOIN, "sh", *map(str, self.cgroup.entrances), "--", *command]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the caller's environment with the cluster's programs in PATH, and `more`.

        Gaia's own settings are left out: this is another machine.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith("GAIA_")}
        return {**own, "PATH": self.tools.path, **(more or {})}

    def exec(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> str:
        """Run a program inside and return its output; a failure tells what it said."""
        done = subprocess.run(
            self.command(argv),
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{argv} on {self.name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def popen(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, name: str | None = None
    ) -> Program:
        """Start a program inside; its output goes to the log `<machine>-<name>.log`."""
        program = self._start(argv, env, name or Path(argv[0]).name)
        self.guests.append(program)
        return program

    def component(self, argv: Sequence[str | Path]) -> Program:
        """Start a program without which the machine is not whole: `alive` watches it."""
        program = self._start(argv, None, Path(argv[0]).name)
        self.components[program.name] = program
        return program

    def _start(self, argv: Sequence[str | Path], env: Mapping[str, str] | None, name: str) -> Program:
        log = self.logs / f"{self.name}-{name}.log"
        return Program(name, self.command(argv), self.environment(env), log)

    def alive(self) -> bool:
        """Return True; raise RuntimeError with its last lines if a component has ended."""
        return all(program.alive() for program in self.components.values())

    def stop_component(self, name: str, how: signal.Signals) -> None:
        """End a component and wait for its end."""
        self.components.pop(name).stop(how)

    def stop_guests(self) -> None:
        """End the programs that `popen` started and that still run."""
        while self.guests:
            self.guests.pop().stop()

    def sh(self, script: str) -> None:
        """Run a few lines of shell inside."""
        self.exec(["sh", "-euc", script])
