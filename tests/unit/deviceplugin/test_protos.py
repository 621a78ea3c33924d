from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROTO = Path("gaia_plugin/deviceplugin/proto")


def generated(root: Path) -> dict[Path, str]:
    return {
        path.relative_to(root): path.read_text()
        for path in sorted((root / PROTO).rglob("api_pb2*"))
        if path.suffix in (".py", ".pyi")
    }


def test_the_code_is_what_the_protos_make(tmp_path: Path) -> None:
    subprocess.run([ROOT / "tools" / "protos.sh", tmp_path], check=True, timeout=240)
    made = generated(tmp_path)
    assert len(made) == 8
    assert generated(ROOT) == made, "run tools/protos.sh"


def test_the_code_imports_as_a_package_and_without_a_warning() -> None:
    modules = [
        f"gaia_plugin.deviceplugin.proto.{which}.api_pb2{part}"
        for which in ("deviceplugin.v1beta1", "podresources.v1")
        for part in ("", "_grpc")
    ]
    code = f"import sys, {', '.join(modules)}; assert not {{'api_pb2', 'api_pb2_grpc'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60, cwd=ROOT)
