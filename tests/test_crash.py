"""Runs that are killed, interrupted, or in each other's way: nothing is lost, nothing is believed.

A run is a process of its own, in a process group of its own, so that it can be killed with all of
its workers. Where a test needs it at an exact point, it runs a script that stops there: it tells
its process over a named pipe, and goes on when the test opens another. Nothing waits for a time.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import decant_batch
from decant_batch.archive import restore, verify
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.ledger.rows import PastRun
from tests import tiffs
from tests.recover import recover
from tests.tiffs import TiffSpec

BASE = TiffSpec(pages=3, shape=(64, 48), pixels="random", gap=17, trailing=30)
PROGRAM = ("-c", "from decant_batch.ui.cli import main; main()")
ROOT = Path(decant_batch.__file__).parents[1]
# A test fails before this only because something hangs.
PATIENCE_S = 240.0

# What a script does before it is the command line. Workers run its first lines too: they are
# started from its file.
STOPPING = """
import os, signal, sys
from pathlib import Path
from decant_batch.archive import container
from decant_batch.archive import layout as layouts
from decant_batch.batch import publish
from decant_batch.batch.ledger import writer

AT, TELL, GO, ONCE = (os.environ["DECANT_TEST_" + name] for name in ("AT", "TELL", "GO", "ONCE"))

def stop():
    try:
        os.close(os.open(ONCE, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    with open(TELL, "w") as tell:
        tell.write(f"{os.getpid()}\\n")
    with open(GO) as go:
        go.read()

def before(owner, name, when=lambda *args: True):
    function = getattr(owner, name)
    def stopping(*args, **options):
        if when(*args):
            stop()
        return function(*args, **options)
    setattr(owner, name, stopping)

def after(owner, name, when=lambda *args: True):
    function = getattr(owner, name)
    def stopping(*args, **options):
        result = function(*args, **options)
        if when(*args):
            stop()
        return result
    setattr(owner, name, stopping)

def dies(owner, name, when):
    function = getattr(owner, name)
    def dying(*args, **options):
        if when(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    setattr(owner, name, dying)

def a_few_keys_in(self, *_rest):
    if self.path.suffix != ".partial":
        return False
    if self.kind == "zip":
        self._file.flush()
    return len(self.list()) > 4

def some_archived(_self, outcomes):
    return any(outcome.state == "archived" for outcome in outcomes)

{
    "half-written": lambda: [
        after(kind, "set", a_few_keys_in)
        for kind in (container.ZipWriter, container.FolderContainer)
    ],
    "written": lambda: before(publish, "verify"),
    "verified": lambda: before(publish, "publish"),
    "two-names": lambda: after(Path, "hardlink_to"),
    "named": lambda: after(publish, "publish"),
    "unrecorded": lambda: before(writer.Ledger, "record", some_archived),
    "in-transaction": lambda: after(writer.Ledger, "_record"),
    "recorded": lambda: after(writer.Ledger, "record", some_archived),
    "begun": lambda: after(writer.Ledger, "begin"),
    "killer-job": lambda: dies(publish, "_made", lambda *args: "killer" in args[3]),
    "killer-survey": lambda: dies(layouts, "survey", lambda path: "killer" in path.name),
}[AT]()

if __name__ == "__main__":
    from decant_batch.ui.cli import main
    main()
"""
IN_WORKER = ("half-written", "written", "verified", "two-names", "named")
IN_DRIVER = ("begun", "unrecorded", "in-transaction", "recorded")


@dataclass(kw_only=True)
class Share:
    """A share of small TIFFs, a destination, and runs between them."""

    folder: Path
    contents: dict[str, bytes]
    container: str = "zip"
    destination: Path = field(init=False)

    def __post_init__(self) -> None:
        self.destination = self.folder / "archive"
        for relpath, data in self.contents.items():
            path = self.folder / "share" / relpath
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    @property
    def ledger(self) -> Path:
        return self.destination / ".decant-batch" / "ledger.sqlite"

    @property
    def suffix(self) -> str:
        return ".zarr.zip" if self.container == "zip" else ".zarr"

    def config(self, **changes: Any) -> Path:
        values: dict[str, Any] = {
            "source": str(self.folder / "share"),
            "destination": str(self.destination),
            "settle": "0s",
            "archive": {"container": self.container, "threads": 1},
            "cluster": {"kind": "local", "workers": 2, "memory": "1GiB"},
        }
        path = self.folder / "decant.yaml"
        path.write_text(yaml.safe_dump(values | changes), encoding="utf-8")
        return path

    def archives(self) -> list[Path]:
        """What has a final name; while a run goes on, too."""
        found = []
        for folder, names, files in os.walk(self.destination):
            here = [name for name in (*names, *files) if name.endswith(self.suffix)]
            found += [Path(folder, name) for name in here]
            names[:] = [name for name in names if not name.endswith((self.suffix, ".partial"))]
        return sorted(found)

    def temporaries(self) -> list[Path]:
        return [path for path in self.destination.rglob("*") if path.name.endswith(".partial")]

    def runs(self) -> list[PastRun]:
        """The runs that the ledger knows, the first first."""
        with Ledger.read(self.ledger) as records:
            return list(reversed(records.runs(100)))

    def is_complete(self) -> None:
        """Assert that every source is archived once, gives its bytes back, and nothing is left."""
        assert self.temporaries() == []
        names = {str(path.relative_to(self.destination)) for path in self.archives()}
        assert names == {f"{relpath}{self.suffix}" for relpath in self.contents}
        for relpath, data in self.contents.items():
            archive = self.destination / f"{relpath}{self.suffix}"
            assert list(recover(archive).values()) == [data]
        back = self.folder / "back"
        for archive in self.archives():
            restore(archive, back)
        restored = {str(path.relative_to(back)): path for path in back.rglob("*.tif")}
        assert {relpath: path.read_bytes() for relpath, path in restored.items()} == self.contents
        shutil.rmtree(back)
        with Ledger.read(self.ledger) as records:
            rows = [records.source_of(relpath) for relpath in self.contents]
            assert {row.state for row in rows if row is not None} == {"archived"}
            assert None not in rows
            assert records.holder() is None


def share(folder: Path, count: int, **options: Any) -> Share:
    contents = {
        f"sub {number % 3}/{number:03}.tif": tiffs.build(replace(BASE, seed=number))
        for number in range(count)
    }
    return Share(folder=folder, contents=contents, **options)


Process = subprocess.Popen[str]


@pytest.fixture(autouse=True, scope="module")
def _interruptible() -> None:
    """A suite begun in the background of a script ignores SIGINT, and its children would, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def started(*command: object, **environment: str) -> Iterator[Process]:
    """A process in a group of its own; whatever is left of the group is killed at the end."""
    with subprocess.Popen(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            kill_all(process)


def kill_all(process: Process) -> None:
    """Kill a run with its workers, all at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def ended(process: Process) -> tuple[int, str, str]:
    """Exit code and what was said, when it has ended by itself."""
    out, error = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, error


def run(config: Path) -> dict[str, Any]:
    """A run from its beginning to its end, and its JSON."""
    with started(*PROGRAM, "run", config, "--json") as process:
        code, out, error = ended(process)
    assert code == 0, error
    values: dict[str, Any] = json.loads(out)
    return values


def until(process: Process, is_so: Callable[[], bool]) -> None:
    """Wait until something can be seen from outside while a process lives."""
    for _ in range(int(PATIENCE_S / 0.002)):
        if is_so():
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.002)
            raise AssertionError(f"ended too early: {ended(process)}")
    raise AssertionError("never seen")


@dataclass(kw_only=True)
class Gate:
    """Where a run stops at one point, once, and says so."""

    folder: Path
    point: str

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.script = self.folder / "stopping.py"
        self.script.write_text(STOPPING, encoding="utf-8")
        for name in ("tell", "go"):
            os.mkfifo(self.folder / name)
        # Open for both, so that neither side's opening waits for the other.
        self._tell = os.open(self.folder / "tell", os.O_RDWR)

    @contextmanager
    def run(self, config: Path) -> Iterator[Process]:
        environment = {f"DECANT_TEST_{name.upper()}": str(self.folder / name)
                       for name in ("tell", "go", "once")}  # fmt: skip
        with started(
            self.script, "run", config, "--json", DECANT_TEST_AT=self.point, **environment
        ) as process:
            yield process

    def reached(self, process: Process) -> int:
        """The process that stands at the point now."""
        until(process, lambda: bool(select.select([self._tell], [], [], 0)[0]))
        return int(os.read(self._tell, 100).split()[0])

    def open(self) -> None:
        """Let it go on."""
        with (self.folder / "go").open("w"):
            pass

    def close(self) -> None:
        os.close(self._tell)


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Callable[[str], Gate]]:
    made: list[Gate] = []

    def make(point: str) -> Gate:
        made.append(Gate(folder=tmp_path / f"gate-{len(made)}", point=point))
        return made[-1]

    yield make
    for gate in made:
        gate.close()


def all_named_are_whole(where: Share) -> None:
    """Assert that what has a final name gives its source back, whatever else is true."""
    for archive in where.archives():
        assert [each.problem for each in verify(archive)] == [None], archive


# --- killed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 150])
def test_killed_with_its_workers_the_next_run_finishes(tmp_path: Path, count: int) -> None:
    """More than two pieces of work, so that some is recorded and some is not."""
    where = share(tmp_path, 300)
    config = where.config()
    with started(*PROGRAM, "run", config, "--json") as process:
        until(process, lambda: len(where.archives()) >= count)
        kill_all(process)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    before = where.archives()
    assert count <= len(before)
    all_named_are_whole(where)
    inodes = {archive: archive.stat().st_ino for archive in before}

    values = run(config)

    assert values["states"]["archived"]["count"] == 300
    where.is_complete()
    assert {archive: archive.stat().st_ino for archive in before} == inodes, "packed only once"
    first, second = where.runs()
    assert first.stopped is not None
    assert "died" in first.stopped
    assert second.stopped is None


@pytest.mark.parametrize(
    ("point", "container"),
    [
        *((point, "zip") for point in (*IN_WORKER, *IN_DRIVER)),
        *((point, "folder") for point in ("half-written", "verified", "named")),
    ],
)
def test_killed_at_any_point_the_next_run_finishes(
    tmp_path: Path, gates: Callable[[str], Gate], point: str, container: str
) -> None:
    where, gate = share(tmp_path, 12, container=container), gates(point)
    config = where.config()
    with gate.run(config) as process:
        gate.reached(process)
        kill_all(process)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    if point in IN_WORKER[:4]:
        assert where.temporaries()
    all_named_are_whole(where)
    values = run(config)
    assert values["states"]["archived"]["count"] == 12
    where.is_complete()


@pytest.mark.parametrize(
    ("point", "number"), [("half-written", signal.SIGKILL), ("verified", signal.SIGTERM)]
)
def test_workers_do_not_outlive_their_driver(
    tmp_path: Path, gates: Callable[[str], Gate], point: str, number: signal.Signals
) -> None:
    """Else they would write on into what the next run sweeps."""
    where, gate = share(tmp_path, 6), gates(point)
    config = where.config()
    with gate.run(config) as process:
        worker = psutil.Process(gate.reached(process))
        assert worker.pid != process.pid
        process.send_signal(number)
        process.wait(PATIENCE_S)
        _gone, alive = psutil.wait_procs([worker], timeout=PATIENCE_S)
        assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]
    all_named_are_whole(where)
    run(config)
    where.is_complete()


def test_the_next_run_may_come_while_a_worker_of_the_dead_one_still_lives(
    tmp_path: Path, gates: Callable[[str], Gate]
) -> None:
    """A worker that hangs in the kernel, on a dead mount, outlives all: here it is stopped."""
    where, gate = share(tmp_path, 6), gates("verified")
    config = where.config()
    with gate.run(config) as process:
        worker = psutil.Process(gate.reached(process))
        worker.suspend()
        process.kill()
        process.wait(PATIENCE_S)
        run(config)
        where.is_complete()
        worker.resume()
        psutil.wait_procs([worker], timeout=PATIENCE_S)
        where.is_complete()


# --- a worker dies ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "container"), [*((point, "zip") for point in IN_WORKER), ("half-written", "folder")]
)
def test_a_worker_that_dies_once_costs_nothing(
    tmp_path: Path, gates: Callable[[str], Gate], point: str, container: str
) -> None:
    where, gate = share(tmp_path, 12, container=container), gates(point)
    with gate.run(where.config()) as process:
        worker = gate.reached(process)
        assert worker != process.pid
        os.kill(worker, signal.SIGKILL)
        code, out, error = ended(process)
    assert code == 0, error
    assert json.loads(out)["states"]["archived"]["count"] == 12
    where.is_complete()


@pytest.mark.parametrize(
    ("point", "count"),
    [("killer-job", 12), ("killer-job", 100), ("killer-survey", 12), ("killer-survey", 100)],
)
def test_a_source_that_kills_every_worker_harms_no_other(
    tmp_path: Path, gates: Callable[[str], Gate], point: str, count: int
) -> None:
    where, gate = share(tmp_path, count), gates(point)
    (where.folder / "share" / "sub 1" / "killer.tif").write_bytes(tiffs.build(BASE))
    with gate.run(where.config()) as process:
        code, out, error = ended(process)
    assert code == 1, error
    values = json.loads(out)
    failed = [(each["relpath"], each["failure"]) for each in values["troubles"]]
    assert failed == [("sub 1/killer.tif", "poison")]
    assert values["states"]["archived"]["count"] == count
    where.is_complete()


# --- interrupted ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "to_all"),
    [("half-written", False), ("unrecorded", False), ("begun", True), ("verified", True)],
)
def test_an_interrupt_leaves_order_and_the_next_run_finishes(
    tmp_path: Path, gates: Callable[[str], Gate], point: str, to_all: bool
) -> None:
    """Ctrl-C in a terminal goes to the workers too."""
    where, gate = share(tmp_path, 12), gates(point)
    config = where.config()
    with gate.run(config) as process:
        gate.reached(process)
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        code, out, error = ended(process)
    assert code == 130, error
    assert "interrupted" in error
    assert json.loads(out)["stopped"] == "interrupted"
    assert where.temporaries() == []
    all_named_are_whole(where)
    (first,) = where.runs()
    assert (first.stopped, first.ended_ns is None) == ("interrupted", False)
    values = run(config)
    assert values["states"]["archived"]["count"] == 12
    where.is_complete()


def test_an_interrupt_at_any_time_leaves_order(tmp_path: Path) -> None:
    where = share(tmp_path, 300)
    config = where.config()
    with started(*PROGRAM, "run", config) as process:
        until(process, lambda: len(where.archives()) >= 150)
        os.killpg(process.pid, signal.SIGINT)
        code, _out, error = ended(process)
    assert code == 130, error
    assert where.temporaries() == []
    all_named_are_whole(where)
    assert [past.stopped for past in where.runs()] == ["interrupted"]
    run(config)
    where.is_complete()


@pytest.mark.parametrize("to_all", [False, True], ids=["driver", "terminal"])
def test_an_interrupt_is_told_in_one_line(
    tmp_path: Path, gates: Callable[[str], Gate], to_all: bool
) -> None:
    where, gate = share(tmp_path, 12), gates("unrecorded")
    with gate.run(where.config()) as process:
        gate.reached(process)
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        _code, out, error = ended(process)
    assert "Traceback" not in error
    assert len(error.splitlines()) == 1
    assert "interrupted" in error
    assert json.loads(out)["stopped"] == "interrupted"


@pytest.mark.parametrize("to_all", [False, True], ids=["driver", "terminal"])
@pytest.mark.parametrize("later_s", [0.0, 0.1, 0.2, 0.4])
def test_an_interrupt_while_workers_start_is_told_in_one_line(
    tmp_path: Path, to_all: bool, later_s: float
) -> None:
    """The ledger is there right before the workers start; a half-started worker would complain."""
    where = share(tmp_path, 300)
    with started(*PROGRAM, "run", where.config(), "--quiet") as process:
        until(process, (where.destination / ".decant-batch" / "ledger.sqlite").exists)
        time.sleep(later_s)
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        code, _out, error = ended(process)
    assert code == 130, error
    assert len(error.splitlines()) == 1, error
    assert "interrupted" in error
    assert where.temporaries() == []


# --- two at once ------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["half-written", "unrecorded"])
def test_a_second_run_is_refused_while_the_first_lives(
    tmp_path: Path, gates: Callable[[str], Gate], point: str
) -> None:
    where, gate = share(tmp_path, 6), gates(point)
    config = where.config()
    with gate.run(config) as process:
        gate.reached(process)
        before = {path: path.lstat().st_ino for path in where.destination.rglob("*")}
        with started(*PROGRAM, "run", config) as other:
            code, _out, error = ended(other)
        assert code == 3
        for word in (str(where.ledger), str(process.pid), socket.gethostname()):
            assert word in error
        assert "Traceback" not in error
        after = {path: path.lstat().st_ino for path in where.destination.rglob("*")}
        assert {path: after.get(path) for path in before} == before, "the first's work is touched"
        gate.open()
        code, out, error = ended(process)
    assert code == 0, error
    assert json.loads(out)["states"]["archived"]["count"] == 6
    where.is_complete()
    assert len(where.runs()) == 1


def test_runs_of_two_ledgers_into_one_destination_do_not_mix(
    tmp_path: Path, gates: Callable[[str], Gate]
) -> None:
    """The first has proved an archive and not named it yet; the second has begun to write one."""
    first, second = (
        Share(folder=tmp_path / name, contents={f"{name}.tif": tiffs.build(spec)})
        for name, spec in (("one", BASE), ("two", replace(BASE, seed=2, pages=30)))
    )
    second.destination = first.destination
    proved, begun = gates("verified"), gates("half-written")
    with proved.run(first.config()) as process:
        proved.reached(process)
        ledger = str(tmp_path / "two" / "ledger" / "ledger.sqlite")
        with begun.run(second.config(ledger=ledger)) as other:
            begun.reached(other)
            proved.open()
            code, _out, error = ended(process)
            assert code == 0, error
            archive = first.destination / "one.tif.zarr.zip"
            assert list(recover(archive).values()) == [first.contents["one.tif"]]
            begun.open()
            code, _out, error = ended(other)
            assert code == 0, error
    archive = first.destination / "two.tif.zarr.zip"
    assert list(recover(archive).values()) == [second.contents["two.tif"]]
    assert first.temporaries() == []
