"""Pools and virtual memory management of the simulated driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gaia_plugin.sim import Simulation
from gaia_plugin.units import GIB, MIB
from tests.sim.sim_client import Client

CONTEXT = 300 * MIB
Start = Callable[..., Client]
HELPERS = """
pool = ok(cu.cuDeviceGetDefaultMemPool(0))
A = cu.CUmemPool_attribute
def attribute(name): return int(ok(cu.cuMemPoolGetAttribute(pool, getattr(A, "CU_MEMPOOL_ATTR_" + name))))
def keep(n): ok(cu.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cu.cuuint64_t(n)))
def properties(handle=cu.CUmemAllocationProp):
    p = handle(); p.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE; p.location.id = 0
    t = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    if handle is cu.CUmemAllocationProp: p.type = t
    else: p.allocType = t
    return p
"""


@pytest.fixture
def program(client: Start) -> Client:
    started = client()
    started.do("start()")
    started.do(f"exec({HELPERS!r}, globals())")
    return started


def test_pool_is_charged_by_what_it_reserves(program: Client, truth: Simulation) -> None:
    program.do("p = ok(cu.cuMemAllocAsync(MIB, 0))")
    assert truth.used()[0] == CONTEXT + 32 * MIB
    program.do("q = ok(cu.cuMemAllocAsync(100 * MIB + 1, 0))")
    assert truth.used()[0] == CONTEXT + 102 * MIB
    names = "['RESERVED_MEM_CURRENT', 'USED_MEM_CURRENT', 'RESERVED_MEM_HIGH', 'USED_MEM_HIGH']"
    assert program.do(f"[attribute(n) for n in {names}]") == [
        102 * MIB,
        101 * MIB + 1,
        102 * MIB,
        101 * MIB + 1,
    ]


def test_freed_memory_stays_in_the_pool_until_synchronised(program: Client, truth: Simulation) -> None:
    program.do("p = ok(cu.cuMemAllocAsync(100 * MIB, 0)); ok(cu.cuMemFreeAsync(p, 0))")
    assert truth.used()[0] == CONTEXT + 100 * MIB
    assert program.do("attribute('USED_MEM_CURRENT')") == 0
    program.do("ok(cu.cuStreamSynchronize(0))")
    assert truth.used()[0] == CONTEXT


def test_threshold_keeps_and_trim_releases(program: Client, truth: Simulation) -> None:
    program.do("keep(2**64 - 1)")
    program.do("p = ok(cu.cuMemAllocAsync(100 * MIB, 0)); q = ok(cu.cuMemAllocAsync(10 * MIB, 0))")
    program.do("ok(cu.cuMemFreeAsync(p, 0)); ok(cu.cuCtxSynchronize())")
    assert truth.used()[0] == CONTEXT + 132 * MIB
    program.do("ok(cu.cuMemPoolTrimTo(pool, 50 * MIB))")
    assert truth.used()[0] == CONTEXT + 50 * MIB
    program.do("ok(cu.cuMemPoolTrimTo(pool, 0))")
    assert truth.used()[0] == CONTEXT + 10 * MIB


def test_created_pool_goes_with_its_last_block(program: Client, truth: Simulation) -> None:
    program.do("own = ok(cu.cuMemPoolCreate(properties(cu.CUmemPoolProps)))")
    program.do("p = ok(cu.cuMemAllocFromPoolAsync(GIB, own, 0)); ok(cu.cuMemPoolDestroy(own))")
    assert truth.used()[0] == CONTEXT + GIB
    program.do("ok(cu.cuMemFreeAsync(p, 0))")
    assert truth.used()[0] == CONTEXT


def test_pool_that_cannot_grow_is_out_of_memory(program: Client, truth: Simulation) -> None:
    assert program.do("code(cu.cuMemAllocAsync(24 * GIB, 0))") == 2
    assert truth.used()[0] == CONTEXT


def test_handle_lives_while_it_is_referenced_or_mapped(program: Client, truth: Simulation) -> None:
    program.do("h = ok(cu.cuMemCreate(4 * MIB, properties(), 0))")
    program.do("a = ok(cu.cuMemAddressReserve(8 * MIB, 0, 0, 0)); ok(cu.cuMemMap(a, 4 * MIB, 0, h, 0))")
    program.do("ok(cu.cuMemRelease(h))")
    assert truth.used()[0] == CONTEXT + 4 * MIB
    program.do("again = ok(cu.cuMemRetainAllocationHandle(int(a) + 5)); ok(cu.cuMemUnmap(a, 4 * MIB))")
    assert truth.used()[0] == CONTEXT + 4 * MIB
    program.do("ok(cu.cuMemRelease(again)); ok(cu.cuMemAddressFree(a, 8 * MIB))")
    assert truth.used()[0] == CONTEXT
    assert program.do("code(cu.cuMemRelease(again))") == 1


def test_two_mappings_of_a_handle_show_the_same_bytes(program: Client) -> None:
    program.do("h = ok(cu.cuMemCreate(2 * MIB, properties(), 0))")
    program.do("a = ok(cu.cuMemAddressReserve(4 * MIB, 0, 0, 0))")
    program.do("ok(cu.cuMemMap(a, 2 * MIB, 0, h, 0)); ok(cu.cuMemMap(int(a) + 2 * MIB, 2 * MIB, 0, h, 0))")
    program.do("ok(cu.cuMemcpyHtoD(int(a) + 9, b'slice', 5)); back = bytearray(5)")
    program.do("ok(cu.cuMemcpyDtoH((ctypes.c_char * 5).from_buffer(back), int(a) + 2 * MIB + 9, 5))")
    assert program.do("back.decode()") == "slice"
    assert program.do("code(cu.cuMemMap(a, 2 * MIB, 0, h, 0))") == 1, "that range is taken"
    assert program.do("code(cu.cuMemAddressFree(a, 4 * MIB))") == 1, "something is mapped there"


def test_copy_to_addresses_without_memory_is_refused(program: Client) -> None:
    program.do("a = ok(cu.cuMemAddressReserve(2 * MIB, 0, 0, 0))")
    assert program.do("code(cu.cuMemcpyHtoD(a, b'slice', 5))") == 1
