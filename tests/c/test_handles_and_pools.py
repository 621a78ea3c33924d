"""Memory by handle, by pool and in graphs: charged while the card holds it, not a moment less."""

from __future__ import annotations

from collections.abc import Callable

from tests.c.slotbench import MIB, OOM, Bench

Make = Callable[..., Bench]


def test_a_handle_is_charged_until_the_last_reference_and_mapping_are_gone(bench: Make) -> None:
    slot = bench()
    slot.card(0, 64 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls(
            f"vcreate 1 {64 * MIB} 0 1", f"vreserve 2 {64 * MIB}", f"vmap 2 0 {64 * MIB} 1"
        ) == [0, 0, 0]
        assert program.call("vrelease 1") == 0
        assert slot.used() == 64 * MIB, "create, map and release is no way round the limit"
        assert program.call(f"vcreate 3 {2 * MIB} 0 1") == OOM
        assert program.call(f"vretain 4 2 {4 * MIB}") == 0
        assert program.call(f"vunmap 2 0 {64 * MIB}") == 0
        assert slot.used() == 64 * MIB
        assert program.call("vrelease 4") == 0
        assert slot.used() == 0
        assert slot.truth() == (0, 64 * MIB)


def test_one_unmap_ends_several_mappings(bench: Make) -> None:
    slot = bench()
    slot.card(0, 64 * MIB)
    piece = 2 * MIB
    with slot.client() as program:
        program.start()
        assert program.call(f"vreserve 9 {8 * piece}") == 0
        for k in range(4):
            assert program.calls(f"vcreate {k + 1} {piece} 0 1", f"vmap 9 {k * piece} {piece} {k + 1}") == [
                0,
                0,
            ]
            assert program.call(f"vrelease {k + 1}") == 0
        assert slot.used() == 4 * piece
        assert program.call(f"vunmap 9 {piece} {piece}") == 0
        assert slot.used() == 3 * piece
        assert program.call(f"vunmap 9 {2 * piece} {2 * piece}") == 0
        assert slot.used() == piece


def test_host_memory_by_handle_is_not_counted(bench: Make) -> None:
    slot = bench()
    slot.card(0, 4 * MIB)
    with slot.client() as program:
        program.start()
        program.call(f"vcreate 1 {64 * MIB} 0 2")
        assert slot.used() == 0


def test_handles_need_no_context_and_outlive_it(bench: Make) -> None:
    slot = bench()
    slot.card(0, 64 * MIB)
    with slot.client() as program:
        assert program.calls("init", f"vcreate 1 {64 * MIB} 0 1") == [0, 0]
        assert program.call("retain 0 0") == 0
        assert program.call("release 0") == 0
        assert slot.used() == 64 * MIB


def test_a_pool_is_charged_by_what_it_keeps(bench: Make) -> None:
    slot = bench()
    slot.card(0, 256 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls("default_pool 9 0", "keep_all 9") == [0, 0]
        assert program.call(f"async 1 {128 * MIB}") == 0
        assert slot.used() == slot.truth()[0] >= 128 * MIB
        assert program.calls("free_async 1", "sync") == [0, 0]
        assert slot.used() == slot.truth()[0] >= 128 * MIB, "kept by the pool"
        assert program.call(f"alloc 2 {256 * MIB}") == 0, "a refusal trims the own pools first"
        assert program.call(f"async 1 {2 * MIB}") == OOM
        assert slot.truth()[1] <= 256 * MIB
        assert program.call("free 2") == 0
        assert program.call(f"async 1 {256 * MIB}") == 0, "exactly the limit"
        assert program.call("async 2 1") == OOM
        assert slot.truth()[1] <= 256 * MIB


def test_pools_of_ones_own(bench: Make) -> None:
    slot = bench()
    slot.card(0, 256 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls("pool 8 0 1", "keep_all 8") == [0, 0]
        assert program.call(f"from_pool 1 {64 * MIB} 8") == 0
        assert slot.used() == slot.truth()[0] >= 64 * MIB
        assert program.call(f"from_pool 2 {256 * MIB} 8") == OOM
        assert program.calls("free_async 1", "sync") == [0, 0]
        assert program.call("trim 8 0") == 0
        assert slot.used() == 0
        assert program.call(f"from_pool 1 {64 * MIB} 8") == 0
        assert program.calls("free_async 1", "sync", "end_pool 8") == [0, 0, 0]
        assert slot.used() == slot.truth()[0] == 0


def test_info_follows_a_pool_that_shrank(bench: Make) -> None:
    slot = bench()
    slot.card(0, 256 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls(f"async 1 {128 * MIB}", "free_async 1", "sync") == [0, 0, 0]
        assert program.numbers("info") == [0, 256 * MIB - slot.truth()[0], 256 * MIB]


def test_stream_ordered_memory_freed_the_plain_way_and_back(bench: Make) -> None:
    slot = bench()
    slot.card(0, 256 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls(f"async 1 {64 * MIB}", "sync", "free 1", "sync") == [0, 0, 0, 0]
        program.numbers("info")
        assert slot.used() == slot.truth()[0]


def test_a_captured_allocation_is_not_charged(bench: Make) -> None:
    slot = bench()
    slot.card(0, 64 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls("stream 7", "capture 7") == [0, 0]
        captured = program.call(f"async_on 1 {128 * MIB} 7")
        assert slot.used() == 0
        assert captured != OOM
