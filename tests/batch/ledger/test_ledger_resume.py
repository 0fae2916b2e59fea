"""What is settled, at which scale, and that every source is in exactly one state."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from decant_batch.batch.ledger import Ledger, Others
from decant_batch.batch.model import Outcome, Source

if TYPE_CHECKING:
    from tests.batch.ledger.conftest import Make


def _names() -> st.SearchStrategy[str]:
    """File names as Linux has them: any bytes but NUL and slash."""
    part = st.binary(min_size=1, max_size=12).map(lambda b: b.translate(None, b"\0/") or b"\xe9")
    return st.lists(part, min_size=1, max_size=3).map(lambda p: os.fsdecode(b"/".join(p)))


@pytest.mark.parametrize(
    ("state", "others", "size", "mtime_ns", "settled"),
    [
        ("archived", "report", 10, 5, True),
        ("archived", "verbatim", 10, 5, True),
        ("archived", "report", 11, 5, False),
        ("archived", "report", 10, 6, False),
        ("archived", "report", 10, 4, False),
        ("reported", "report", 10, 5, True),
        ("reported", "verbatim", 10, 5, False),
        ("reported", "report", 11, 5, False),
        ("failed", "report", 10, 5, False),
        ("changing", "report", 10, 5, False),
        ("waiting", "report", 10, 5, False),
        ("unknown", "report", 10, 5, False),
    ],
)
def test_what_is_settled(
    make: Make, state: str, others: Others, size: int, mtime_ns: int, settled: bool
) -> None:
    source = make.source()
    outcomes: dict[str, Callable[[Source], Outcome]] = {
        "archived": make.archived,
        "reported": make.reported,
        "failed": make.failed,
        "changing": make.changing,
    }
    with make.ledger() as ledger:
        if state != "unknown":
            ledger.unsettled([source], "report")
        if state in outcomes:
            ledger.record([outcomes[state](source)])
    now = make.source(size=size, mtime_ns=mtime_ns)
    left = [] if settled else [now]
    with Ledger.read(make.path) as records:
        assert records.unsettled([now], others) == left
    with make.ledger() as ledger:
        assert ledger.unsettled([now], others) == left
        assert ledger.summary().settled.count == settled
        assert ledger.unsettled([now], others) == left


def test_a_changed_source_waits_again_and_its_old_archive_is_kept(make: Make) -> None:
    first, second = make.source(), make.source(size=11)
    with make.ledger() as ledger:
        assert ledger.versions([first]) == {"a.tif": 1}
        ledger.record([make.archived(first)])
        assert ledger.versions([first, second]) == {"a.tif": 1}
    with Ledger.read(make.path) as records:
        assert records.versions([second]) == {"a.tif": 1}
    with make.ledger() as ledger:
        ledger.unsettled([second], "report")
        row = ledger.source_of("a.tif")
        assert row is not None
        assert (row.state, row.archive, row.size) == ("waiting", None, 11)
        ledger.record([make.archived(second, archive="a.tif.v2.zarr.zip", sha256="cd" * 32)])
        assert ledger.versions([make.source(size=12)]) == {"a.tif": 2}
        assert ledger.versions([first]) == {"a.tif": 1}
        old, new = ledger.archive_of("a.tif.zarr.zip"), ledger.archive_of("a.tif.v2.zarr.zip")
    assert old is not None
    assert new is not None
    assert (old.version, old.size, old.sha256) == (1, 10, "ab" * 32)
    assert (new.version, new.size, new.sha256) == (2, 11, "cd" * 32)


def test_a_source_whose_archive_is_gone_waits_again(make: Make) -> None:
    here, gone = make.source("a.tif"), make.source("b.tif")
    with make.ledger() as ledger:
        ledger.record([make.archived(here), make.archived(gone)])

    def stands(archive: str, nbytes: int) -> bool:
        assert nbytes == 5
        return archive == "a.tif.zarr.zip"

    with make.ledger() as ledger:
        assert ledger.unsettled([here, gone], "report", stands) == [gone]
        states = ledger.summary().states
        assert states["archived"].count == 1
        assert ledger.waiting().count == 1
        assert ledger.versions([gone]) == {"b.tif": 1}
        ledger.record([make.archived(gone)])
        assert ledger.unsettled([here, gone], "report", lambda *_: True) == []


@given(names=st.lists(_names(), min_size=1, max_size=20, unique=True), message=_names())
@settings(max_examples=15, deadline=None)
def test_names_that_are_not_utf8_survive(names: list[str], message: str) -> None:
    sources = [Source(relpath=name, size=1, mtime_ns=2, mode=0) for name in names]
    archives = {f"{name}.zarr.zip": name for name in names}
    binding = {"source": names[0], "destination": message, "config": "{}"}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        with Ledger.open(path, **binding) as ledger:
            assert ledger.unsettled(sources, "report") == sources
            ledger.record([_failed(source, message) for source in sources])
            ledger.finish(message)
        with Ledger.open(path, **binding) as ledger:
            assert ledger.binding() == (names[0], message)
            assert ledger.runs()[1].stopped == message
            ledger.unsettled(sources, "report")
            failures = [(failure.relpath, failure.message) for failure in ledger.failures()]
            assert failures == [(name, message) for name in names]
            ledger.record([_archived(source, f"{source.relpath}.zarr.zip") for source in sources])
            assert ledger.taken(archives) == archives
            rows = [ledger.archive_of(archive) for archive in archives]
            assert [(row.path, row.relpath) for row in rows if row] == list(archives.items())
            assert ledger.unsettled(sources, "report") == []


def _failed(source: Source, message: str) -> Outcome:
    return Outcome(source=source, state="failed", failure="permanent", message=message)


def _archived(source: Source, archive: str) -> Outcome:
    return Outcome(
        source=source, state="archived", archive=archive, mode="verbatim", sha256="00" * 32
    )


def test_utf8_names_can_be_asked_for_by_people(make: Make) -> None:
    with make.ledger() as ledger:
        ledger.unsettled([make.source("µ/größe.tif"), make.source("\udce9.tif")], "report")
    kinds = make.ask("SELECT typeof(relpath) FROM source ORDER BY id")
    assert kinds == [("text",), ("blob",)]
    assert make.ask("SELECT id FROM source WHERE relpath LIKE '%größe%'") == [(1,)]


def _share(make: Make, count: int) -> Iterator[list[Source]]:
    sources = (make.source(f"day{n % 97:03}/plate{n:07}.ome.tif") for n in range(count))
    while batch := list(islice(sources, 2000)):
        yield batch


def _resume(make: Make, ledger: Ledger, count: int) -> tuple[int, int]:
    """Return the bytes at the peak and the thousands of SQLite's steps that a resume takes."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    ledger._connection.set_progress_handler(step, 1000)
    tracemalloc.start()
    for batch in _share(make, count):
        assert ledger.unsettled(batch, "report") == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    ledger._connection.set_progress_handler(None, 0)
    return peak, steps


def test_resume_over_100_000_settled_sources_is_linear_in_steps_and_flat_in_memory(
    make: Make,
) -> None:
    with make.ledger() as ledger:
        for batch in _share(make, 100_000):
            ledger.record([make.archived(source) for source in batch])
        few_peak, few_steps = _resume(make, ledger, 4000)
        many_peak, many_steps = _resume(make, ledger, 100_000)
        # Less than one pointer for each further source: nothing of them is kept. The peaks
        # themselves move by a batch or so, with the moment at which Python collects.
        assert many_peak - few_peak < 8 * 96_000
        assert many_steps / 100_000 <= 1.5 * few_steps / 4000
        assert ledger.summary().states["archived"].count == 100_000


class Runs(RuleBasedStateMachine):
    """Runs over a share that changes, against a plain dictionary of what must be the case."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.sqlite"
        self.share: dict[str, Source] = {}
        self.settled: dict[str, tuple[Source, str]] = {}
        self.held: dict[str, list[Source]] = {}
        self.others: Others = "report"

    @initialize()
    def begin(self) -> None:
        self.ledger = Ledger.open(self.path, source="/s", destination="/d", config="{}")
        self.found: dict[str, Source] = {}
        self.states: dict[str, str] = {}

    def teardown(self) -> None:
        self.ledger.__exit__(None, None, None)
        self.folder.cleanup()

    @rule(name=st.sampled_from("abcdé\udce9"), size=st.integers(0, 3), mtime_ns=st.integers(0, 2))
    def write_file(self, name: str, size: int, mtime_ns: int) -> None:
        self.share[name] = Source(relpath=name, size=size, mtime_ns=mtime_ns, mode=0o600)

    @rule(name=st.sampled_from("abcdé\udce9"))
    def remove_file(self, name: str) -> None:
        self.share.pop(name, None)

    @rule()
    def walk(self) -> None:
        sources = [source for name, source in self.share.items() if name not in self.found]
        wanted = [source for source in sources if not self._is_settled(source)]
        assert self.ledger.unsettled(sources, self.others) == wanted
        # What was met with other content is not remembered, should the old content come back.
        for source in wanted:
            self.settled.pop(source.relpath, None)
        self.found.update({source.relpath: source for source in sources})

    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        left = [name for name, source in self.found.items() if not self._is_settled(source)]
        if not left:
            return
        source = self.found[data.draw(st.sampled_from(sorted(left)))]
        ends = ["archived", "changing", "failed", *["reported"] * (self.others == "report")]
        state = data.draw(st.sampled_from(ends))
        version = self._version(source, keep=state == "archived")
        archive = f"{source.relpath}.v{version}.zarr.zip"
        outcome = {
            "archived": _archived(source, archive),
            "reported": Outcome(source=source, state="reported"),
            "changing": Outcome(source=source, state="changing"),
            "failed": Outcome(source=source, state="failed", failure="poison"),
        }[state]
        self.ledger.record([outcome])
        self.settled[source.relpath] = (source, state)

    def _version(self, source: Source, *, keep: bool) -> int:
        """The number of the archive that holds the source, or of a new one that is to."""
        held = self.held.setdefault(source.relpath, [])
        first = self.ledger.versions([source])[source.relpath]
        if held and held[first - 1] == source:
            return first
        assert source not in held
        assert first == max(1, len(held))
        if keep:
            held.append(source)
        return len(held) + (not keep)

    @rule(others=st.sampled_from(["report", "verbatim"]))
    def next_run(self, others: Others) -> None:
        self.ledger.__exit__(None, None, None)
        self.others = others
        self.begin()

    def _is_settled(self, source: Source) -> bool:
        before, state = self.settled.get(source.relpath, (None, ""))
        return before == source and (
            state == "archived" or (state == "reported" and self.others == "report")
        )

    @invariant()
    def every_source_found_is_in_exactly_one_state(self) -> None:
        summary = self.ledger.summary()
        tallies = [*summary.states.values(), self.ledger.waiting()]
        assert sum(tally.count for tally in tallies) == len(self.found)
        nbytes = sum(source.size for source in self.found.values())
        assert sum(tally.source_nbytes for tally in tallies) == nbytes
        modes = sum(tally.count for tally in summary.modes.values())
        archived = summary.states.get("archived")
        assert modes == (archived.count if archived else 0)

    @invariant()
    def what_is_settled_is_counted_so(self) -> None:
        states = self.ledger.summary().states
        for state in ("archived", "reported"):
            expected = sum(
                self._is_settled(source) and self.settled[source.relpath][1] == state
                for source in self.found.values()
            )
            counted = states.get(state)
            assert (counted.count if counted else 0) == expected


Runs.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRuns = Runs.TestCase
