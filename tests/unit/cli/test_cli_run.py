"""The whole road on simulated cards: agent, `gaia run`, a program that allocates, and resizes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.api.client import SlotClient
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB, MIB

OUT_OF_MEMORY = 2


def the_slot(place: Any) -> Any:
    slots = place.client.slots()
    return slots[0] if slots else None


def all_free(place: Any) -> bool:
    return not place.client.slots() and all(card.free == card.total for card in place.client.cards())


def test_a_program_is_held_to_its_slice_and_grows_while_it_runs(place: Any) -> None:
    program = place.allocator("--memory", "4GiB", "--cores", "25", "--name", "work")
    assert program.ask("context") == [0]
    assert program.ask("alloc", 3072) == [0]
    assert program.ask("alloc", 2048) == [OUT_OF_MEMORY]
    slot = the_slot(place)
    assert slot.granted.memory == 4 * GIB
    resized = place.gaia("resize", slot.slot, "--memory", "8GiB", "--cores", "50")
    assert resized.returncode == 0, resized.stderr
    assert resized.stdout.startswith("applied: ")
    assert program.ask("alloc", 2048) == [0]
    assert program.end() == 0
    place.poll(lambda: all_free(place), "the slot's return")


def test_a_shrink_below_use_drains_and_is_applied_after_the_free(place: Any) -> None:
    program = place.allocator("--memory", "4GiB", "--name", "work")
    for _ in range(3):
        assert program.ask("alloc", 1024) == [0]
    name = the_slot(place).slot
    resized = place.client.resize(name, memory="2GiB")
    assert resized.state == "draining"
    assert "free it" in resized.message
    assert program.ask("info")[:2] == [0, 0]
    assert program.ask("alloc", 1) == [OUT_OF_MEMORY]
    assert program.ask("free") == [0]
    assert program.ask("alloc", 1) == [OUT_OF_MEMORY]
    assert program.ask("free") == [0]
    slot = place.poll(lambda: (found := the_slot(place)).state == "applied" and found, "applied")
    assert slot.held.memory == 2 * GIB
    assert program.ask("alloc", 512) == [0]


def test_cuda_bindings_run_in_a_slice(place: Any) -> None:
    code = (
        "from cuda.bindings import driver as d\n"
        "assert d.cuInit(0)[0] == 0\n"
        "assert d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])[0] == 0\n"
        "print(int(d.cuMemAlloc(512 << 20)[0]), int(d.cuMemAlloc(1 << 30)[0]))\n"
    )
    done = place.gaia(
        "run", "--driver", str(place.driver), "--memory", "1GiB", "--", sys.executable, "-c", code
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "2"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_program_gives_its_slice_back(place: Any, how: signal.Signals) -> None:
    program = place.allocator("--memory", "4GiB")
    assert program.ask("alloc", 1024) == [0]
    directory = place.state / "slots" / the_slot(place).slot
    assert directory.exists()
    program.process.send_signal(how)
    assert program.process.wait(30) == -how
    place.poll(lambda: all_free(place), "the slot's return")
    place.poll(lambda: not directory.exists(), "the end of its directory")


def test_a_program_has_exit_code_input_and_arguments_of_its_own(place: Any) -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.read()); sys.exit(41)"
    done = place.gaia(
        "run", "--driver", str(place.driver), "--memory", "1GiB", "--",
        sys.executable, "-c", code, "--memory", "x", input="hello",
    )  # fmt: skip
    assert done.returncode == 41
    assert done.stdout == "['--memory', 'x'] hello\n"


def test_a_slice_that_does_not_fit_is_one_sentence_and_exit_code_3(place: Any) -> None:
    words = ("run", "--driver", str(place.driver))
    for memory in ("500GiB", "0GiB", "8", "8\n", "-1GiB"):
        done = place.gaia(*words, f"--memory={memory}", "--", "true")
        assert done.returncode == 3, done
        assert done.stderr.startswith("gaia: ")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    assert place.client.slots() == ()


def test_a_program_that_is_not_there_takes_no_slot(place: Any, tmp_path: Path) -> None:
    words = ("run", "--driver", str(place.driver), "--memory", "1GiB", "--")
    assert place.gaia(*words, "no-such-program").returncode == 127
    plain = tmp_path / "plain"
    plain.write_text("")
    assert place.gaia(*words, str(plain)).returncode == 126
    assert not place.state.exists()


def test_a_directory_without_a_driver_is_refused_in_words(place: Any, tmp_path: Path) -> None:
    done = place.gaia("run", "--driver", str(tmp_path), "--memory", "1GiB", "--", "true")
    assert done.returncode == 1
    assert "no driver directory" in done.stderr


def test_a_second_agent_serves_nothing_and_names_the_first(place: Any) -> None:
    first = place.agent()
    for number in (signal.SIGSTOP, signal.SIGCONT):
        first.send_signal(number)
        second = place.gaia("agent", "--driver", str(place.driver))
        assert second.returncode == 17
        assert f"process {first.pid}" in second.stderr
    assert place.client.health().pid == first.pid


@pytest.mark.parametrize(
    ("name", "foreign", "words"),
    [
        ("slots", "file", "Not a directory"),
        ("operator.sock", "folder", "Is a directory"),
        ("agent.json", "folder", "Is a directory"),
        ("ledger.sqlite", "folder", "cannot be opened"),
        ("ledger.sqlite", "file", "is damaged"),
        ("lock", "folder", "cannot be used"),
    ],
)
def test_an_agent_that_finds_something_foreign_says_where_in_a_sentence(
    place: Any, name: str, foreign: str, words: str
) -> None:
    place.state.mkdir(parents=True)
    if foreign == "folder":
        (place.state / name).mkdir()
    else:
        (place.state / name).write_bytes(b"something else" * 500)
    done = place.gaia("agent", "--driver", str(place.driver))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gaia: "), done.stderr
    assert words in last
    assert str(place.state) in last
    assert "Traceback" not in done.stderr


def test_an_agent_that_was_killed_and_started_again_keeps_its_slots(place: Any) -> None:
    first = place.agent()
    program = place.allocator("--memory", "4GiB", "--name", "work")
    assert program.ask("alloc", 1024) == [0]
    before = the_slot(place)
    first.kill()
    first.wait()
    assert program.ask("alloc", 1024) == [0]
    assert program.ask("alloc", 4096) == [OUT_OF_MEMORY]
    with pytest.raises(Refusal) as refused:
        place.client.slots()
    assert refused.value.code is Code.UNAVAILABLE
    place.agent()
    after = the_slot(place)
    assert (after.slot, after.granted, after.generation) == (before.slot, before.granted, before.generation)
    assert place.client.resize(after.slot, memory="8GiB").state == "applied"
    assert program.ask("alloc", 4096) == [0]
    program.process.kill()
    place.poll(lambda: all_free(place), "the slot's return")


def test_a_program_that_ended_while_no_agent_ran_is_released_by_the_next(place: Any) -> None:
    first = place.agent()
    program = place.allocator("--memory", "4GiB")
    assert program.ask("alloc", 1024) == [0]
    first.kill()
    first.wait()
    program.process.kill()
    program.process.wait()
    place.agent()
    place.poll(lambda: all_free(place), "the slot's return")


def test_the_first_program_in_a_fresh_place_is_charged_its_context(place: Any) -> None:
    program = place.allocator("--memory", "1GiB")
    assert program.ask("alloc", 1024 - 300) == [0]
    assert program.ask("alloc", 1) == [OUT_OF_MEMORY]
    slot = the_slot(place)
    assert slot.used == 1024 * MIB
    assert slot.state == "applied"


def test_inside_a_slot_gaia_resizes_its_own(place: Any) -> None:
    inner = f"{sys.executable} -m gaia_plugin.cli resize --memory 2GiB --json"
    done = place.gaia("run", "--driver", str(place.driver), "--memory", "1GiB", "--", "sh", "-c", inner)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["slot"]["granted"]["memory"] == 2 * GIB


def test_a_slot_socket_answers_in_the_program_and_ends_with_it(place: Any) -> None:
    program = place.allocator("--memory", "1GiB", "--name", "work")
    assert program.ask("context") == [0]
    client = SlotClient(place.state / "slots" / the_slot(place).slot / "agent.sock")
    with client.events() as stream:
        seen = iter(stream)
        assert next(seen).granted.memory == GIB
        client.resize(memory="2GiB")
        place.poll(lambda: next(seen).granted.memory == 2 * GIB, "the change")
        program.process.kill()
        states = [slot.state for slot in seen]
        # what was measured before the end may still be told; after the end is known, it is known
        assert states == sorted(states, key="applied".__ne__)
    with pytest.raises(Refusal):
        client.slot()


def test_an_agent_started_for_a_run_ends_when_idle(place: Any) -> None:
    from gaia_plugin.api.start import answers, ensure_agent

    before = dict(os.environ)
    # long enough to be seen alive in between, however seldom this process is let to look
    client = ensure_agent(place.state, place.driver, idle_exit=5)
    assert client.health().slots == 0
    place.poll(lambda: not answers(place.state), "the end of the idle agent")
    place.poll(
        lambda: not (place.root.parent / "sim-state").exists(), "the end of the simulated cards' state"
    )
    assert dict(os.environ) == before


def test_several_first_runs_at_once_share_one_agent(place: Any) -> None:
    programs = [place.allocator("--memory", "1GiB") for _ in range(6)]
    for program in programs:
        assert program.ask("alloc", 100) == [0]
    assert len(place.client.slots()) == 6
    for program in programs:
        assert program.end() == 0


def test_a_stopped_process_counts_as_running(place: Any) -> None:
    program = place.allocator("--memory", "1GiB")
    assert program.ask("alloc", 100) == [0]
    program.process.send_signal(signal.SIGSTOP)
    assert the_slot(place).state == "applied"
    program.process.send_signal(signal.SIGCONT)
    assert program.end() == 0


def test_bad_bodies_over_the_real_socket_change_nothing(place: Any) -> None:
    program = place.allocator("--memory", "4GiB", "--name", "work")
    assert program.ask("context") == [0]
    client = SlotClient(place.state / "slots" / the_slot(place).slot / "agent.sock")
    before = client.slot()
    for memory in (0, -1, "8\n", ["8GiB"], 10**30, float("nan"), "8 bananas", "100GiB", True, "8"):
        place.poll(lambda memory=memory: _refused(client, memory), str(memory))
    assert client.slot().granted == before.granted
    assert client.slot().generation == before.generation


def _refused(client: SlotClient, memory: object) -> bool:
    with pytest.raises(Refusal) as refused:
        client.resize(memory=memory)
    return refused.value.code is not Code.TOO_MANY_REQUESTS


def test_a_resize_of_a_slot_that_is_gone_is_a_sentence_and_changes_nothing(place: Any) -> None:
    other = place.allocator("--memory", "4GiB", "--name", "other")
    assert other.ask("context") == [0]
    program = place.allocator("--memory", "1GiB", "--name", "work")
    assert program.ask("context") == [0]
    name = next(slot.slot for slot in place.client.slots() if slot.slot.endswith("work"))
    own = SlotClient(place.state / "slots" / name / "agent.sock")
    assert own.resize(memory="2GiB").state == "applied"
    program.process.kill()
    place.poll(lambda: len(place.client.slots()) == 1, "the slot's return")
    before = place.client.slots()
    done = place.gaia("resize", name, "--memory", "2GiB")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"gaia: There is no slot {name!r}. `gaia slots` lists root--other.\n"
    for resize in (lambda: place.client.resize(name, memory="2GiB"), lambda: own.resize(memory="2GiB")):
        with pytest.raises(Refusal) as refused:
            resize()
        assert refused.value.sentence.endswith(".")
        assert refused.value.code in (Code.NO_SUCH_SLOT, Code.UNAVAILABLE)
    assert place.client.slots() == before


def test_json_of_cards_slots_and_paths(place: Any) -> None:
    place.agent()
    program = place.allocator("--memory", "4GiB", "--name", "work")
    assert program.ask("context") == [0]
    cards = json.loads(place.gaia("cards", "--json").stdout)
    assert [card["total"]["memory"] for card in cards] == [23 * GIB + 512 * MIB] * 2
    slots = json.loads(place.gaia("slots", "--json").stdout)
    assert [slot["granted"]["memory"] for slot in slots] == [4 * GIB]
    places = json.loads(place.gaia("paths", "--json").stdout)
    assert places["state_root"] == str(place.root)
    for words in (("cards",), ("slots",)):
        done = place.gaia(*words)
        assert done.returncode == 0
        assert "4 GiB" in done.stdout or "19.5 GiB" in done.stdout


def test_doctor_says_what_it_found_and_that_this_is_no_boundary(place: Any) -> None:
    place.agent()
    done = place.gaia("doctor", "--driver", str(place.driver))
    assert done.returncode == 0, done.stdout
    assert "no security boundary" in done.stdout
    assert "2 cards" in done.stdout
    assert "is running" in done.stdout
    broken = place.gaia("doctor", "--driver", str(place.root))
    assert broken.returncode == 1
    assert "no driver directory" in broken.stdout


def test_an_agent_in_the_background_is_no_child_and_has_no_terminal(place: Any) -> None:
    program = place.allocator("--memory", "1GiB")
    assert program.ask("context") == [0]
    pid = place.client.health().pid
    assert os.getsid(pid) != os.getsid(program.process.pid)
    stat = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    assert int(stat.stdout) != program.process.pid


def test_the_simulated_gpu_is_made_for_whoever_asks_for_it(place: Any) -> None:
    done = place.gaia("run", "--sim", "--memory", "1GiB", "--", "sh", "-c", "echo $LD_LIBRARY_PATH")
    try:
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(str(place.root / "sim" / "slots"))
    finally:
        holder = place.root / "sim" / "agent.json"
        os.kill(json.loads(holder.read_text())["pid"], signal.SIGTERM)
        from gaia_plugin.sim import probe

        state = probe.state_file(place.root / "sim-driver")
        place.poll(lambda: not state.exists(), "the end of the simulated cards' state with the agent's")


def _listen_to_control_c() -> None:
    # whoever started the tests in the background had it ignored, and that is inherited
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_watching_slots_goes_on_until_control_c(place: Any) -> None:
    place.agent()
    program = place.allocator("--memory", "4GiB", "--cores", "25", "--elastic", "--name", "work")
    assert program.ask("alloc", 1024) == [0]
    for words in (("--json",), ()):
        command = [sys.executable, "-m", "gaia_plugin.cli", "slots", "--watch", *words]
        with subprocess.Popen(
            command,
            env=place.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_listen_to_control_c,
        ) as watch:
            place.started.append(watch)  # ended with the test, also if it fails
            assert watch.stdout is not None
            assert watch.stderr is not None
            if words:
                looks = [json.loads(watch.stdout.readline()) for _ in range(2)]
                assert [look[0]["compute"] for look in looks] == ["elastic"] * 2
                assert looks[0][0]["time"]["guaranteed"] == 250
            else:
                for _ in range(2):  # one table, and the next one
                    assert any("work" in watch.stdout.readline() for _ in range(8))
            watch.send_signal(signal.SIGINT)
            watch.stdout.read()
            assert watch.wait(120) == 0
            assert watch.stderr.read() == ""
    table = place.gaia("slots").stdout
    assert "0 / 25 %" in table
    assert "25 % elastic" in table
