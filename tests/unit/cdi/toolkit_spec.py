"""A spec of the shape that NVIDIA's container toolkit makes, for a machine with two cards."""

from __future__ import annotations

from typing import Any

A = "GPU-00112233-4455-6677-8899-aabbccddeeff"
B = "GPU-ffeeddcc-bbaa-9988-7766-554433221100"
DEBIAN = "/usr/lib/x86_64-linux-gnu"
VERSION = "580.95.05"
HOOK = "/usr/bin/nvidia-cdi-hook"
OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


def hook(*args: str) -> dict[str, Any]:
    """A hook as the toolkit writes it."""
    return {"hookName": "createContainer", "path": HOOK, "args": ["nvidia-cdi-hook", *args]}


def library(name: str, directory: str = DEBIAN, host: str = "") -> dict[str, Any]:
    """A library's mount as the toolkit writes it."""
    path = f"{directory}/{name}"
    return {"hostPath": host + path, "containerPath": path, "options": OPTIONS}


def card(index: int) -> dict[str, Any]:
    """The edits of one card."""
    return {
        "deviceNodes": [{"path": f"/dev/nvidia{index}"}, {"path": f"/dev/dri/renderD{128 + index}"}],
        "hooks": [
            hook("create-symlinks", "--link", f"../renderD{128 + index}::/dev/dri/by-path/pci-{index}")
        ],
    }


def toolkit_spec(
    *, directory: str = DEBIAN, host: str = "", names: str = "uuid", cache: bool = True
) -> dict[str, Any]:
    """The spec as plain values.

    Args:
        directory: of the libraries, in the container.
        host: where the driver's root lies on the host.
        names: how devices are called, "uuid" or "index".
        cache: whether the hook that writes the loader's cache is switched on.
    """
    called = (A, B) if names == "uuid" else ("0", "1")
    both = [card(0), card(1)]
    everything = {key: both[0][key] + both[1][key] for key in both[0]}
    hooks = [
        hook(
            "create-symlinks",
            "--link",
            f"../libnvidia-allocator.so.1::{directory}/gbm/nvidia-drm_gbm.so",
            "--link",
            f"libcuda.so.1::{directory}/libcuda.so",
        ),
        hook("create-symlinks", "--link", f"libcuda.so.1::{directory}/libcuda.so"),
        hook("create-symlinks", f"--link=libnvidia-opticalflow.so.1::{directory}/libnvidia-opticalflow.so"),
        hook("enable-cuda-compat", f"--host-driver-version={VERSION}"),
        *([hook("update-ldcache", "--folder", directory)] if cache else []),
        hook("disable-device-node-modification"),
    ]
    libraries = [
        library(f"{name}.so.{VERSION}", directory, host)
        for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm")
    ]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            *({"name": name, "containerEdits": edits} for name, edits in zip(called, both, strict=True)),
            {"name": "all", "containerEdits": everything},
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", f"NVIDIA_CTK_LIBCUDA_DIR={directory}"],
            "deviceNodes": [
                {"path": f"/dev/{name}"} for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
            ],
            "mounts": [
                *libraries,
                library("libcuda.so." + VERSION, "/usr/lib/i386-linux-gnu", host),
                library("nvidia-smi", "/usr/bin", host),
                library("gsp_ga10x.bin", f"/lib/firmware/nvidia/{VERSION}", host),
            ],
            "hooks": hooks,
        },
    }
