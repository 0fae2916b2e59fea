"""One run at a time: live holders are refused by name, dead ones replaced, lost ones stopped."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

import psutil
import pytest

from decant_batch.batch.ledger import STALE_NS
from decant_batch.errors import LedgerHeld

if TYPE_CHECKING:
    from tests.batch.ledger.conftest import Make

_OPEN_AND_DIE = """
import os, sys
from pathlib import Path
from decant_batch.batch.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]), source="/share", destination="/dest", config="{}")
os._exit(0)
"""

_RACE = """
import sys
from pathlib import Path
from decant_batch.batch.ledger import Ledger
from decant_batch.errors import LedgerHeld
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    sys.stdin.readline()
    path = Path(sys.argv[1]).with_name(f"{number}.sqlite")
    try:
        with Ledger.open(path, source="/share", destination="/dest", config="{}"):
            print("got it", flush=True)
            sys.stdin.readline()
    except LedgerHeld:
        print("held", flush=True)
        sys.stdin.readline()
"""


def _says(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


def _tell(stream: IO[str] | None) -> None:
    assert stream is not None
    stream.write("\n")
    stream.flush()


def test_of_processes_that_start_at_once_one_gets_a_ledger_that_did_not_exist(make: Make) -> None:
    rounds = 8
    with ExitStack() as stack:
        racers = [stack.enter_context(make.process(_RACE, rounds)) for _ in range(3)]
        assert [_says(racer.stdout) for racer in racers] == ["ready"] * 3
        for _ in range(rounds):
            for racer in racers:
                _tell(racer.stdin)
            assert sorted(_says(racer.stdout) for racer in racers) == ["got it", "held", "held"]
            for racer in racers:
                _tell(racer.stdin)


def test_a_second_run_is_refused_and_told_who_holds_the_ledger(make: Make) -> None:
    with make.ledger():
        with pytest.raises(LedgerHeld) as refusal:
            make.ledger()
        for word in (str(make.path), socket.gethostname(), str(os.getpid()), "since", "end it"):
            assert word in str(refusal.value)
        assert len(make.ask("SELECT * FROM run")) == 1
    with make.ledger() as ledger:
        assert ledger.run == 2


def test_the_lock_of_a_process_that_died_is_taken_over(make: Make) -> None:
    make.run(_OPEN_AND_DIE)
    with make.ledger() as ledger:
        assert ledger.run == 2
        dead = ledger.runs()[1]
        assert dead.ended_ns is not None
        assert dead.stopped is not None
        assert "died" in dead.stopped


def test_a_dead_process_that_nobody_waited_for_does_not_hold_the_ledger(make: Make) -> None:
    with make.process(_OPEN_AND_DIE) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        with make.ledger() as ledger:
            assert ledger.run == 2


def test_a_process_number_given_out_again_is_not_the_holder(make: Make) -> None:
    make.run(_OPEN_AND_DIE)
    make.edit("UPDATE lock SET pid = ?, process_start_s = process_start_s - 60", os.getpid())
    with make.ledger() as ledger:
        assert ledger.run == 2


def test_setting_the_clock_does_not_make_a_living_run_look_dead(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make.ledger() as ledger:
        boot_s, created = psutil.boot_time(), psutil.Process.create_time
        monkeypatch.setattr(psutil, "boot_time", lambda: boot_s + 7200)
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: created(self) + 7200)
        holder = ledger.holder()
        assert holder is not None
        assert holder.lives(time.time_ns() + 2 * STALE_NS)


def test_a_holder_whose_process_we_may_not_see_lives_by_its_heartbeat(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unseen(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    def forbidden(_pid: int, _signal: int) -> None:
        raise PermissionError

    with make.ledger() as ledger:
        holder = ledger.holder()
    assert holder is not None
    monkeypatch.setattr(psutil, "Process", unseen)
    assert not holder.lives(holder.heartbeat_ns)
    monkeypatch.setattr(os, "kill", forbidden)
    assert holder.lives(holder.heartbeat_ns)
    assert not holder.lives(holder.heartbeat_ns + STALE_NS)


def test_a_run_on_another_host_holds_the_ledger_while_its_heartbeat_is_fresh(make: Make) -> None:
    make.run(_OPEN_AND_DIE)
    fresh_ns = time.time_ns() - STALE_NS // 2
    make.edit("UPDATE lock SET host = 'microscope7', heartbeat_ns = ?", fresh_ns)
    with pytest.raises(LedgerHeld, match="microscope7"):
        make.ledger()
    make.edit("UPDATE lock SET heartbeat_ns = ?", time.time_ns() - STALE_NS - 1)
    with make.ledger() as ledger:
        assert ledger.run == 2


def test_heartbeats_and_every_write_keep_the_lock_fresh(make: Make) -> None:
    with make.ledger() as ledger:
        for write in (ledger.heartbeat, ledger.walked, lambda: ledger.record([])):
            make.edit("UPDATE lock SET heartbeat_ns = 0")
            write()
            holder = ledger.holder()
            assert holder is not None
            assert holder.heartbeat_ns > 0


def test_a_run_that_lost_its_lock_writes_nothing_more_and_leaves_the_other_alone(
    make: Make,
) -> None:
    source = make.source()
    with make.ledger() as silent:
        silent.unsettled([source], "report")
        make.edit("UPDATE lock SET host = 'asleep', heartbeat_ns = 0")
        with make.ledger() as other:
            with pytest.raises(LedgerHeld, match=r"run 2 on .* has taken the ledger over"):
                silent.heartbeat()
            with pytest.raises(LedgerHeld):
                silent.record([make.archived(source)])
            row = other.source_of("a.tif")
            assert row is not None
            assert row.state == "waiting"
            silent.__exit__(None, None, None)
            other.heartbeat()
    assert make.ask("SELECT stopped FROM run")[0][0].startswith("died")


def test_the_lock_is_released_when_the_block_ends_by_an_error(make: Make) -> None:
    with pytest.raises(RuntimeError), make.ledger():
        raise RuntimeError("the driver fails")
    with make.ledger() as ledger:
        assert ledger.runs()[1].stopped == "RuntimeError: the driver fails"
