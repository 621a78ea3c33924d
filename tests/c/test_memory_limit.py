"""The memory limit as a program sees it: exact, over all entry points, changed under a running process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.c.slotbench import MIB, OOM, Bench

Make = Callable[..., Bench]


def test_exactly_the_limit_succeeds(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {1024 * MIB}") == 0
        assert program.call("alloc 2 1") == OOM
        assert program.call("free 1") == 0
        assert program.call(f"alloc 1 {1024 * MIB + 1}") == OOM
        assert slot.used() == 0


def test_c08_shrink_below_what_is_used(bench: Make) -> None:
    context = 300 * MIB
    slot = bench(context=context)
    slot.card(0, 4096 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls(*(f"alloc {k} {1024 * MIB}" for k in (1, 2, 3))) == [0, 0, 0]
        slot.limit(2048 * MIB)
        assert program.numbers("info") == [0, 0, 2048 * MIB]
        assert program.call(f"touch 1 {1024 * MIB}") == 0
        assert program.call(f"alloc 4 {MIB}") == OOM
        assert program.call("free 1") == 0
        assert slot.used() == 2048 * MIB
        assert program.numbers("info") == [0, 0, 2048 * MIB]
        assert program.call(f"alloc 4 {MIB}") == OOM
        assert program.call("free 2") == 0
        assert program.call(f"alloc 4 {512 * MIB}") == 0
        assert program.call("free 4") == 0
        assert program.numbers("info") == [0, 1024 * MIB - context, 2048 * MIB]
        assert slot.truth()[0] == 1024 * MIB + context


def test_c08_without_context_bytes(bench: Make) -> None:
    slot = bench()
    slot.card(0, 4096 * MIB)
    with slot.client() as program:
        program.start()
        assert program.calls(*(f"alloc {k} {1024 * MIB}" for k in (1, 2, 3))) == [0, 0, 0]
        slot.limit(2048 * MIB)
        assert program.call("free 1") == 0
        assert program.numbers("info") == [0, 0, 2048 * MIB]
        assert program.calls("free 2", f"alloc 4 {512 * MIB}") == [0, 0]
        assert program.numbers("info") == [0, 512 * MIB, 2048 * MIB]


def test_growth_is_seen_by_the_next_call(bench: Make) -> None:
    slot = bench()
    slot.card(0, 100 * MIB)
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {200 * MIB}") == OOM
        slot.limit(200 * MIB)
        assert program.call(f"alloc 1 {200 * MIB}") == 0


def test_report_ceiling_changes_the_total_only(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB, ceiling=4096 * MIB, report=2)
    with slot.client() as program:
        program.start()
        assert program.numbers("info") == [0, 1024 * MIB, 4096 * MIB]
        assert program.numbers("total 0") == [0, 4096 * MIB]
        assert program.call(f"alloc 1 {1025 * MIB}") == OOM


LIMIT = 256 * MIB
ENTRY_POINTS = {
    "cuMemAlloc": (f"alloc 1 {LIMIT + 1}", f"alloc 1 {64 * MIB}", "free 1", "alloc"),
    "cuMemAllocManaged": (f"managed 1 {LIMIT + 1}", f"managed 1 {64 * MIB}", "free 1", "alloc"),
    "cuMemAllocPitch": (f"pitch 1 1000 {LIMIT // 1024 + 1}", "pitch 1 1000 1024", "free 1", "alloc"),
    "cuMemAllocAsync": (f"async 1 {LIMIT + 1}", f"async 1 {64 * MIB}", "free_async 1", "pool"),
    "cuMemAllocAsync_ptsz": (
        f"async_thread 1 {LIMIT + 1}",
        f"async_thread 1 {64 * MIB}",
        "free_async 1",
        "pool",
    ),
    "cuMemCreate": (f"vcreate 1 {LIMIT + 2 * MIB} 0 1", f"vcreate 1 {64 * MIB} 0 1", "vrelease 1", "vmm"),
    "cuArrayCreate": ("array 1 16384 8192 32 1", "array 1 1024 1024 32 4", "end_array 1", "alloc"),
    "cuArray3DCreate": ("array3d 1 1024 1024 128", "array3d 1 256 256 16", "end_array 1", "alloc"),
    "cuMipmappedArrayCreate": ("mipmap 1 16384 16384", "mipmap 1 512 512", "end_mipmap 1", "alloc"),
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_c13_every_entry_point_is_refused_with_2_and_passes_the_drivers_errors(
    bench: Make, name: str
) -> None:
    too_much, fits, free, family = ENTRY_POINTS[name]
    slot = bench()
    slot.card(0, LIMIT)
    with slot.client() as program:
        program.start()
        assert program.call(too_much) == OOM
        assert slot.used() == 0
        for code in (2, 700):
            slot.page("fault", slot.state, family, 1, code)
            assert program.call(fits) == code
            assert slot.used() == 0
        slot.page("fault", slot.state, family, 0, 0)
        assert program.call(fits) == 0
        assert 0 < slot.used() <= LIMIT
        assert slot.places()[0].cards[0][1] == 0, "nothing stays announced"
        assert program.call(free) == 0
        if name.startswith("cuMemAllocAsync"):
            assert program.calls("sync", "default_pool 9 0", "trim 9 0") == [0, 0, 0]
        assert slot.used() == 0
        assert slot.truth()[1] <= LIMIT


@pytest.mark.parametrize("line", ["retain 0 0", "create 2 0 0", "create 3 0 0", "create 4 0 0"])
def test_c13_context_is_charged_refused_and_given_back(bench: Make, line: str) -> None:
    context = 300 * MIB
    slot = bench(context=context)
    slot.card(0, context - 1)
    end = "release 0" if line.startswith("retain") else "destroy 0"
    with slot.client() as program:
        assert program.call("init") == 0
        assert program.call(line) == OOM
        assert slot.truth()[1] == 0
        slot.limit(context)
        for code in (2, 700):
            slot.page("fault", slot.state, "context", 1, code)
            assert program.call(line) == code
            assert slot.places()[0].cards[0] == (0, 0, 0)
        assert program.call(line) == 0
        assert slot.places()[0].cards[0] == (0, 0, 1)
        assert program.calls("set 0", "alloc 1 1") == [0, OOM]
        slot.limit(context + MIB)
        assert program.call("alloc 1 1") == 0
        assert program.call(end) == 0
        assert slot.places()[0].cards[0] == (0, 0, 0), "what the context held vanished with it"


def test_unknown_pointers_are_the_drivers_to_answer(bench: Make) -> None:
    slot = bench()
    slot.card(0, LIMIT)
    with slot.client() as program:
        program.start()
        assert program.call("free 200") == 0, "cuMemFree(0) succeeds"
        assert program.calls(f"alloc 1 {MIB}", "free 1") == [0, 0]
        refused = program.call("free 1")
        assert refused == 1
        assert slot.used() == 0


def test_a_failed_free_changes_nothing(bench: Make) -> None:
    slot = bench()
    slot.card(0, LIMIT)
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {MIB}") == 0
        slot.page("fault", slot.state, "free", 1, 700)
        assert program.call("free 1") == 700
        assert slot.used() == MIB
        assert program.call("free 1") == 0
        assert slot.used() == 0


def test_threads_of_one_process_share_the_limit(bench: Make) -> None:
    slot = bench()
    slot.card(0, 100 * MIB)
    with slot.client() as program:
        program.start()
        assert program.numbers(f"threads 8 50 {MIB} 0") == [0, 100]
        assert slot.used() == 100 * MIB
        assert slot.truth()[1] == 100 * MIB


def test_nothing_without_a_slice_of_that_card(bench: Make) -> None:
    slot = bench(cards=2)
    slot.card(0, LIMIT)
    with slot.client() as program:
        assert program.call("init") == 0
        assert program.call("retain 1 0") == OOM
        assert program.call(f"vcreate 1 {2 * MIB} 1 1") == OOM
        assert program.numbers("total 1") == [0, 0]
        assert program.call("retain 0 0") == 0
        assert slot.truth(1)[1] == 0


@pytest.mark.parametrize(
    ("visible", "order", "expected"),
    [
        ("2,3", "", 3),
        ("1", "", 2),
        ("3,0", "", 4),
        ("UUID 2", "", 3),
        ("2,3", "PCI_BUS_ID", 3),
        ("3,0", "PCI_BUS_ID", 4),
    ],
)
def test_c12_visible_devices_are_not_the_identity_map(
    bench: Make, visible: str, order: str, expected: int
) -> None:
    slot = bench(cards=4)
    for place, card in enumerate((2, 0, 3, 1)):  # nor is the order in the page
        slot.card(place, (card + 1) * 1024 * MIB, card=card)
    limit = expected * 1024 * MIB
    if visible.startswith("UUID"):
        visible = slot.uuids[int(visible[5:])][:12]
    environment = {"CUDA_VISIBLE_DEVICES": visible} | ({"CUDA_DEVICE_ORDER": order} if order else {})
    with slot.client(**environment) as program:
        program.start()
        assert program.numbers("info") == [0, limit, limit]
        assert program.call(f"alloc 1 {limit + 1}") == OOM
        assert program.call(f"alloc 1 {limit}") == 0


def test_c15_cuda_and_nvml_agree(bench: Make) -> None:
    slot = bench(context=300 * MIB)
    slot.card(0, 4096 * MIB)
    limit, used, free = 4096 * MIB, 1300 * MIB, 2796 * MIB
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {1000 * MIB}") == 0
        assert program.numbers("info") == [0, free, limit]
        assert program.numbers("total 0") == [0, limit]
        assert program.numbers(f"nvml v1 {slot.uuids[0]}") == [0, limit, free, used]
        assert program.numbers(f"nvml v2 {slot.uuids[0]}") == [0, limit, free, used, 0]
        assert program.call(f"nvml bad {slot.uuids[0]}") == 25, (
            "the real library's answer for a wrong version"
        )
        assert slot.truth()[0] <= used
        slot.limit(1024 * MIB)  # below use: nothing underflows
        assert program.numbers("info") == [0, 0, 1024 * MIB]
        assert program.numbers(f"nvml v1 {slot.uuids[0]}") == [0, 1024 * MIB, 0, used]
        slot.limit(4096 * MIB)
        slot.page("overhead", slot.slot, slot.places()[0].index, 0, 500 * MIB)  # the agent has measured
        assert program.numbers("info") == [0, limit - 1500 * MIB, limit]
        assert program.numbers(f"nvml v2 {slot.uuids[0]}") == [0, limit, limit - 1500 * MIB, 1500 * MIB, 0]


def test_nvml_shows_other_cards_with_nothing_and_only_the_slots_processes(bench: Make) -> None:
    slot = bench(cards=2)
    slot.card(0, LIMIT)
    outside = slot.environment() | {"LD_LIBRARY_PATH": str(slot.root / "driver")}
    from tests.c.slotbench import Client

    with Client(slot.build / "tests/client", outside) as stranger, slot.client() as program:
        stranger.start()
        program.start()
        mine = int(program.ask("pid")[1])
        assert program.numbers(f"nvml v1 {slot.uuids[1]}") == [0, 0, 0, 0]
        for suffix, record in (("-", 16), ("_v2", 24), ("_v3", 24)):
            assert len(stranger.numbers(f"pids {slot.uuids[0]} {suffix} {record}")) == 5
            assert program.numbers(f"pids {slot.uuids[0]} {suffix} {record}") == [0, 7, 1, mine]
            assert program.numbers(f"pids {slot.uuids[1]} {suffix} {record}") == [0, 0, 0]
