"""Write container images as OCI archives: one layer of files, no registry, no daemon."""

import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path

Entry = tuple[tarfile.TarInfo, bytes]

BUSYBOX = "localhost/busybox:1"
PYTHON = "localhost/python:1"
PAUSE = "localhost/pause:1"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = ("etc", "home", "root", "run", "tmp", "usr", "usr/bin", "usr/lib", "usr/lib64", "var")
_MERGED = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
# what wheels for Linux may expect beside the C library
_FOR_WHEELS = (
    *("libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libnss_dns.so.2", "libnss_files.so.2"),
    *("libpthread.so.0", "libresolv.so.2", "librt.so.1", "libstdc++.so.6", "libutil.so.1", "libz.so.1"),
)


def busybox() -> Path:
    """Return the machine's busybox; it must be static, since the image has no C library."""
    path = Path(shutil.which("busybox") or "/bin/busybox").resolve()
    if b"/ld-linux" in path.read_bytes():
        raise RuntimeError("this busybox is not static: apt-get install busybox-static")
    return path


def write_busybox(target: Path) -> None:
    """Write the image BUSYBOX: a shell and the applets as links."""
    _write(target, BUSYBOX, ["/bin/sh"], _base())


def write_python(target: Path) -> None:
    """Write the image PYTHON: BUSYBOX with the C library and all that this Python is linked with.

    It is laid out as Debian's images are, so that what is mounted into it lands where it would in theirs;
    Python itself is mounted into the pod.
    """
    libraries = sorted({(str(path.parent), path.name) for path in _linked(python_binaries())})
    folders = {folder for parent, _ in libraries for folder in _parents(_merged(parent))} - {*_FOLDERS}
    files = [
        _file(f"{_merged(parent)}/{name}", Path(parent, name).read_bytes(), 0o755)
        for parent, name in libraries
    ]
    _write(target, PYTHON, ["/bin/sh"], [*_base(), *map(_folder, sorted(folders)), *files])


def python_binaries() -> list[Path]:
    """Return the program and the compiled modules of this Python's standard library."""
    modules = Path(sysconfig.get_path("platstdlib"), "lib-dynload")
    if not modules.is_dir():  # in a virtual environment that path is the environment's
        modules = Path(sysconfig.get_path("stdlib"), "lib-dynload")
    found = [path for path in modules.glob("*.so") if not path.name.startswith("_tkinter")]
    return [Path(sys.executable).resolve(), *sorted(found)]


def _linked(binaries: Sequence[Path]) -> set[Path]:
    """Return the system's libraries that `binaries` load, and the loader, by the names they ask for."""
    told = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True).stdout
    found = {Path(path) for path in re.findall(r"(?:=>|^)\s+(/\S+) \(0x", told, re.MULTILINE)}
    (folder,) = {path.parent for path in found if path.name == "libc.so.6"}
    found |= {folder / name for name in _FOR_WHEELS if (folder / name).exists()}
    prefix = Path(sys.base_prefix)
    return {path for path in found if prefix == Path("/usr") or not path.is_relative_to(prefix)}


def _merged(folder: str) -> str:
    """Return a folder's name in the image, where /lib is a link to /usr/lib."""
    first, _, rest = folder.lstrip("/").partition("/")
    return "/".join(filter(None, (_MERGED.get(first, first), rest)))


def _parents(folder: str) -> list[str]:
    parts = folder.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _base() -> list[Entry]:
    """Return folders, users, and busybox with its applets."""
    program = busybox()
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = [_link(f"usr/bin/{applet}", "busybox") for applet in applets if applet != "busybox"]
    users = [
        _file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home:/bin/sh\n", 0o644),
        _file("etc/group", b"root:x:0:\nuser:x:1000:\n", 0o644),
    ]
    folders = [_folder(name) for name in _FOLDERS]
    links += [_link(name, target) for name, target in _MERGED.items()]
    return [*folders, *users, _file("usr/bin/busybox", program.read_bytes(), 0o755), *links]


def write_pause(target: Path, program: Path) -> None:
    """Write the image PAUSE of a pod's sandbox."""
    _write(target, PAUSE, ["/pause"], [_file("pause", program.read_bytes(), 0o755)])


def _file(name: str, content: bytes, mode: int) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = mode, len(content)
    return entry, content


def _folder(name: str) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    return entry, b""


def _link(name: str, target: str) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, target
    return entry, b""


def _archive(entries: Sequence[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _write(target: Path, name: str, command: Sequence[str], layer_entries: Sequence[Entry]) -> None:
    """Write an archive as https://github.com/opencontainers/image-spec/blob/main/image-layout.md says."""
    layer = _archive(layer_entries)
    system = {"architecture": _ARCHITECTURES[platform.machine()], "os": "linux"}
    config = _json(
        {
            **system,
            "config": {"Cmd": list(command), "Env": ["PATH=/bin:/usr/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar", layer)],
        }
    )
    entry = _descriptor("manifest.v1+json", manifest) | {
        "platform": system,
        "annotations": {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        },
    }
    index = _json({"schemaVersion": 2, "manifests": [entry]})
    blobs = [_file(f"blobs/sha256/{_hex(blob)}", blob, 0o644) for blob in (layer, config, manifest)]
    layout = _file("oci-layout", _json({"imageLayoutVersion": "1.0.0"}), 0o644)
    target.write_bytes(_archive([layout, _file("index.json", index, 0o644), *blobs]))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _hex(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _digest(blob: bytes) -> str:
    return f"sha256:{_hex(blob)}"


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {
        "mediaType": f"application/vnd.oci.image.{kind}",
        "digest": _digest(blob),
        "size": len(blob),
    }
