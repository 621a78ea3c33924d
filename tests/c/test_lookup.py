"""C14: cuGetProcAddress hands out our hooks, of the version asked for, also before cuInit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.c.slotbench import MIB, OOM, Bench

Make = Callable[..., Bench]

# name, version, flags -> library and exported name of what is found
FOUND = [
    ("cuGetProcAddress", 11030, 0, "shadow cuGetProcAddress"),
    ("cuGetProcAddress", 11080, 0, "shadow cuGetProcAddress"),
    ("cuGetProcAddress", 12000, 0, "shadow cuGetProcAddress_v2"),
    ("cuGetProcAddress", 13000, 0, "shadow cuGetProcAddress_v2"),
    ("cuMemAlloc", 2000, 0, "driver cuMemAlloc"),
    ("cuMemAlloc", 3010, 0, "driver cuMemAlloc"),
    ("cuMemAlloc", 3020, 0, "shadow cuMemAlloc_v2"),
    ("cuMemAlloc", 13000, 2, "shadow cuMemAlloc_v2"),
    ("cuCtxCreate", 3020, 0, "shadow cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, 0, "shadow cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, 0, "shadow cuCtxCreate_v4"),
    ("cuCtxCreate", 13000, 0, "shadow cuCtxCreate_v4"),
    ("cuMemAllocAsync", 12000, 0, "shadow cuMemAllocAsync"),
    ("cuMemAllocAsync", 12000, 1, "shadow cuMemAllocAsync"),
    ("cuMemAllocAsync", 12000, 2, "shadow cuMemAllocAsync_ptsz"),
    ("cuDevicePrimaryCtxRelease", 7000, 0, "shadow cuDevicePrimaryCtxRelease"),
    ("cuDevicePrimaryCtxRelease", 11000, 0, "shadow cuDevicePrimaryCtxRelease_v2"),
    ("cuGraphAddNode", 12020, 0, "shadow cuGraphAddNode"),
    ("cuGraphAddNode", 12030, 0, "shadow cuGraphAddNode_v2"),
    ("cuLaunchKernel", 12000, 0, "shadow cuLaunchKernel"),
    ("cuLaunchKernel", 12000, 2, "shadow cuLaunchKernel_ptsz"),
    ("cuLaunchKernelEx", 12000, 2, "shadow cuLaunchKernelEx_ptsz"),
    ("cuLaunchCooperativeKernel", 12000, 0, "shadow cuLaunchCooperativeKernel"),
    ("cuLaunchGridAsync", 12000, 0, "shadow cuLaunchGridAsync"),
    ("cuGraphLaunch", 12000, 2, "shadow cuGraphLaunch_ptsz"),
    ("cuDeviceGetCount", 12000, 0, "driver cuDeviceGetCount"),
    ("cuInit", 12000, 0, "driver cuInit"),
]


@pytest.mark.parametrize("way", ["v1", "v2"])
def test_c14_every_answer_has_the_version_asked_for(bench: Make, way: str) -> None:
    slot = bench()
    slot.card(0, 64 * MIB)
    with slot.client() as program:
        for name, version, flags, expected in FOUND:
            result, status, *where = program.ask(f"lookup {way} {name} {version} {flags}")
            assert (result, " ".join(where)) == ("0", expected), (name, version, flags)
            assert int(status) == (0 if way == "v2" else -1)


def test_c14_what_the_driver_does_not_know_is_its_own_answer(bench: Make) -> None:
    slot = bench()
    slot.card(0, 64 * MIB)
    with slot.client() as program:
        assert program.ask("lookup v1 cuNoSuchThing 12000 0")[0] == "500"
        assert program.ask("lookup v2 cuNoSuchThing 12000 0") == ["0", "1", "none", "none"]
        assert program.ask("lookup v2 cuMemAllocAsync 2000 0") == ["0", "2", "none", "none"]
        assert program.ask("lookup v1 cuMemAlloc 99000 0")[0] == "1", "newer than the driver"


@pytest.mark.parametrize("way", ["v1", "v2"])
def test_c14_the_pointer_goes_through_our_accounting(bench: Make, way: str) -> None:
    slot = bench()
    slot.card(0, 64 * MIB)
    with slot.client() as program:
        assert program.ask(f"lookup {way} cuMemAlloc 12000 0 5")[0] == "0"
        program.start()
        assert program.call(f"call_alloc 5 1 {65 * MIB}") == OOM
        assert program.call(f"call_alloc 5 1 {64 * MIB}") == 0
        assert slot.used() == 64 * MIB


def test_an_old_driver_answers_for_itself(bench: Make) -> None:
    slot = bench(extra="cuda = 11040")
    slot.card(0, 64 * MIB)
    with slot.client() as program:
        assert program.ask("lookup v1 cuMemAlloc 11040 0")[1:] == ["-1", "shadow", "cuMemAlloc_v2"]
        assert program.ask("lookup v1 cuMemAlloc 12000 0")[0] == "1"
        program.start()
        assert program.call(f"alloc 1 {65 * MIB}") == OOM
