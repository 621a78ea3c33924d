"""The simulated libcuda, used through NVIDIA's own Python bindings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.sim import Simulation
from gaia_plugin.units import GIB, MIB
from tests.sim.sim_client import Client, run_code

CONTEXT = 300 * MIB
USABLE = 24 * GIB - 512 * MIB
Start = Callable[..., Client]


def test_calls_before_cuinit_are_refused(client: Start) -> None:
    assert client().do("code(cu.cuDeviceGetCount())") == 3


def test_bytes_come_back_as_they_were_copied(driver: Path) -> None:
    found = run_code(
        driver,
        """
start()
p = ok(cu.cuMemAlloc(64 * MIB))
source = bytes(range(256)) * 4096
back = bytearray(len(source))
ok(cu.cuMemcpyHtoD(p, source, len(source)))
q = ok(cu.cuMemAlloc(64 * MIB))
ok(cu.cuMemcpyDtoD(q, p, len(source)))
ok(cu.cuMemsetD8(int(q) + 16, 7, 4))
ok(cu.cuMemcpyDtoH((ctypes.c_char * len(back)).from_buffer(back), q, len(back)))
expected = bytearray(source); expected[16:20] = b"\\x07" * 4
print(json.dumps([back == expected, code(cu.cuMemcpyHtoD(int(p) + 64 * MIB - 4, source, 8))]))
""",
    )
    assert found == [True, 1]


def test_memory_is_counted_to_the_byte_and_ends_with_error_2(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start()")
    assert program.do("ok(cu.cuMemGetInfo())") == [USABLE - CONTEXT, USABLE]
    program.do("p = ok(cu.cuMemAlloc(GIB + 1))")
    assert truth.used() == (CONTEXT + GIB + 1, 0)
    rest = USABLE - CONTEXT - GIB - 1
    assert program.do(f"code(cu.cuMemAlloc({rest + 1}))") == 2
    assert program.do(f"code(cu.cuMemAlloc({rest}))") == 0
    assert program.do("ok(cu.cuMemGetInfo())")[0] == 0
    assert truth.peak() == (USABLE, 0)
    program.do("ok(cu.cuMemFree(p))")
    assert truth.used() == (USABLE - GIB - 1, 0)


def test_context_overhead_is_charged_once_per_process_and_card(client: Start, truth: Simulation) -> None:
    one, two = client(), client()
    one.do("start(); c = ok(cu.cuDevicePrimaryCtxRetain(0))")
    assert truth.used() == (CONTEXT, 0)
    two.do("start(1)")
    one.do("start(1)")
    assert truth.used() == (CONTEXT, 2 * CONTEXT)
    one.do("[ok(cu.cuDevicePrimaryCtxRelease(0)) for _ in range(2)] and None")
    assert truth.used() == (0, 2 * CONTEXT)
    assert one.do("code(cu.cuDevicePrimaryCtxRelease(0))") == 201


def test_context_that_does_not_fit_is_out_of_memory(client: Start, truth: Simulation) -> None:
    one, two = client(), client()
    one.do("start()")
    one.do(f"ok(cu.cuMemAlloc({USABLE - 2 * CONTEXT + 1}))")
    two.do("ok(cu.cuInit(0))")
    assert two.do("code(cu.cuDevicePrimaryCtxRetain(0))") == 2
    assert truth.used() == (USABLE - CONTEXT + 1, 0)


def test_destroyed_context_takes_its_memory_along(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start()")
    program.do("c = ok(cu.cuCtxCreate(None, 0, 0)); p = ok(cu.cuMemAlloc(GIB))")
    assert truth.used() == (CONTEXT + GIB, 0)
    program.do("ok(cu.cuCtxDestroy(c))")
    assert truth.used() == (CONTEXT, 0)
    assert program.do("code(cu.cuMemFree(p))") == 1
    assert program.do("code(cu.cuCtxSetCurrent(c))") == 201


def test_reset_leaves_a_destroyed_context_current(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start(); ok(cu.cuMemAlloc(GIB))")
    program.do("ok(cu.cuDevicePrimaryCtxReset(0))")
    assert truth.used() == (0, 0)
    assert program.do("code(cu.cuMemAlloc(1))") == 709


def test_threads_have_stacks_of_current_contexts(driver: Path) -> None:
    found = run_code(
        driver,
        """
import threading
a = start(0)
b = ok(cu.cuDevicePrimaryCtxRetain(1))
ok(cu.cuCtxPushCurrent(b))
seen = [ok(cu.cuCtxGetDevice())]
other = []
thread = threading.Thread(target=lambda: other.append(code(cu.cuMemAlloc(1))))
thread.start(); thread.join()
ok(cu.cuCtxPopCurrent())
seen.append(ok(cu.cuCtxGetDevice()))
print(json.dumps([list(map(int, seen)), other]))
""",
    )
    assert found == [[1, 0], [201]]


@pytest.mark.parametrize(
    ("call", "charged"),
    [
        ("cu.cuMemAllocPitch(1000, 10, 4)", 10240),
        ("cu.cuMemAllocManaged(5000, 1)", 5000),
        ("cu.cuMemAlloc(1)", 1),
    ],
)
def test_allocations_charge_what_they_take(client: Start, truth: Simulation, call: str, charged: int) -> None:
    program = client()
    program.do("start()")
    program.do(f"got = {call}; assert code(got) == 0, got")
    assert truth.used() == (CONTEXT + charged, 0)
    program.do("ok(cu.cuMemFree(got[1]))")
    assert truth.used() == (CONTEXT, 0)


def test_arrays_are_counted_and_freed_as_arrays(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start()")
    program.do(
        "d = cu.CUDA_ARRAY_DESCRIPTOR(); d.Width, d.Height, d.NumChannels = 1024, 8, 4;"
        "d.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT; a = ok(cu.cuArrayCreate(d))"
    )
    assert truth.used() == (CONTEXT + 1024 * 8 * 4 * 4, 0)
    assert program.do("code(cu.cuMemFree(int(a)))") == 1
    program.do("ok(cu.cuArrayDestroy(a))")
    assert truth.used() == (CONTEXT, 0)


def test_pointers_tell_where_they_belong(driver: Path) -> None:
    found = run_code(
        driver,
        """
start(1)
p = int(ok(cu.cuMemAlloc(MIB)))
A = cu.CUpointer_attribute
def ask(name, at=p + 100): return cu.cuPointerGetAttribute(getattr(A, "CU_POINTER_ATTRIBUTE_" + name), at)
base, size = ok(cu.cuMemGetAddressRange(p + 100))
print(json.dumps([int(ok(ask("MEMORY_TYPE"))), int(ok(ask("DEVICE_ORDINAL"))),
    int(ok(ask("RANGE_START_ADDR"))) == p, int(base) == p, int(size), code(ask("MEMORY_TYPE", 4096))]))
""",
    )
    assert found == [2, 1, True, True, MIB, 1]


@pytest.mark.parametrize(
    ("name", "version", "flags", "status"),
    [
        ("cuMemAlloc", 3020, 0, 0),
        ("cuMemAlloc", 1999, 0, 2),
        ("cuCtxCreate", 12050, 0, 0),
        ("cuMemAllocAsync", 12000, 2, 0),
        ("cuNoSuchThing", 12000, 0, 1),
        ("", 0, 0, 1),
    ],
)
def test_functions_are_found_by_name_and_version(
    driver: Path, name: str, version: int, flags: int, status: int
) -> None:
    got = run_code(
        driver,
        f"""
library = ctypes.CDLL("libcuda.so.1")
out, status = ctypes.c_void_p(), ctypes.c_int(-1)
wish = ({name!r}.encode(), ctypes.byref(out), {version}, ctypes.c_uint64({flags}))
first = library.cuGetProcAddress_v2(*wish, ctypes.byref(status))
old = library.cuGetProcAddress(*wish)
print(json.dumps([first, status.value, old, bool(out.value)]))
""",
    )
    assert got == [0, status, 0 if status == 0 else 500, status == 0]


def test_variant_found_is_that_of_the_version(driver: Path) -> None:
    got = run_code(
        driver,
        """
library = ctypes.CDLL("libcuda.so.1")
def find(name, version, flags=0):
    out = ctypes.c_void_p()
    library.cuGetProcAddress_v2(name, ctypes.byref(out), version, ctypes.c_uint64(flags), None)
    return out.value
def symbol(name): return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
print(json.dumps([find(b"cuMemAlloc", 2000) == symbol("cuMemAlloc"),
    find(b"cuMemAlloc", 3020) == symbol("cuMemAlloc_v2"),
    find(b"cuCtxCreate", 11040) == symbol("cuCtxCreate_v3"),
    find(b"cuGetProcAddress", 11030) == symbol("cuGetProcAddress"),
    find(b"cuGetProcAddress", 12000) == symbol("cuGetProcAddress_v2"),
    find(b"cuLaunchKernel", 7000, 2) == symbol("cuLaunchKernel_ptsz")]))
""",
    )
    assert got == [True] * 6


def test_capture_forbids_waiting_and_charges_nothing(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start(); s = ok(cu.cuStreamCreate(0))")
    program.do("ok(cu.cuStreamBeginCapture(s, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))")
    assert program.do("int(ok(cu.cuStreamIsCapturing(s)))") == 1
    program.do("ok(cu.cuMemAllocAsync(GIB, s))")
    assert truth.used() == (CONTEXT, 0)
    assert program.do("code(cu.cuCtxSynchronize())") == 900
    program.do("g = ok(cu.cuStreamEndCapture(s)); ok(cu.cuCtxSynchronize())")
    assert program.do("int(ok(cu.cuStreamIsCapturing(s)))") == 0
