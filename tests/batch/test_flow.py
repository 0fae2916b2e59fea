"""What is handed out next, and what is made of what comes back: a real ledger, no worker.

The engine here runs functions inline, in the order in which workers would, and loses work as dask
does: what a worker was handed dies with it, whoever is to blame.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from decant_batch.archive.model import Recipe, Report, silent
from decant_batch.batch import flow as flows
from decant_batch.batch import publish, task, verdicts
from decant_batch.batch.config import Config
from decant_batch.batch.engine import Done, Engine
from decant_batch.batch.flow import Flow
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import (
    Excluded,
    FailureClass,
    Job,
    Outcome,
    Roots,
    Source,
    Summary,
    Survey,
    Tally,
    Tick,
    Trouble,
)
from decant_batch.batch.plan import Terms

MIB = 1 << 20
BIG = 100 * MIB  # more than a batch takes
PER_WORKER = 2
ALLOWED, RESERVED = 1 << 30, 100 * MIB


class Death(BaseException):
    """The worker that runs this is gone."""


class Idle(BaseException):
    """Nothing is under way and nothing was handed out: in earnest, the run would wait."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One submission, and the worker that it was handed to at once."""

    token: object
    function: Callable[..., Any]
    args: tuple[Any, ...]
    memory: int
    urgency: int
    worker: int

    @property
    def is_survey(self) -> bool:
        return self.urgency > 0

    @property
    def relpaths(self) -> tuple[str, ...]:
        if self.is_survey:
            return tuple(source.relpath for source in self.args[1])
        return tuple(job.source.relpath for job in self.args[1])


@dataclass(kw_only=True)
class FakeEngine:
    """As ``Engine``, without processes; records what was handed out and how much at once."""

    workers: int = 2
    patience: int = 10_000
    underway: dict[object, int] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)
    asked_s: list[float] = field(default_factory=list)
    _open: list[Piece] = field(default_factory=list)
    _ended: deque[Done] = field(default_factory=deque)
    _idle: int = 0

    def submit(
        self, token: object, function: Callable[..., Any], *args: object, memory: int, urgency: int
    ) -> None:
        load = Counter(piece.worker for piece in self._open)
        worker = min(range(self.workers), key=lambda number: load[number])
        piece = Piece(
            token=token,
            function=function,
            args=args,
            memory=memory,
            urgency=urgency,
            worker=worker,
        )
        self.pieces.append(piece)
        self._open.append(piece)
        for kind, is_survey in (("surveys", True), ("performs", False)):
            count = sum(each.is_survey is is_survey for each in self._open)
            self.most[kind] = max(self.most[kind], count)

    def next(self, timeout_s: float) -> Done | None:
        self.asked_s.append(timeout_s)
        if self._ended:
            return self._ended.popleft()
        if not self._open:
            self._idle += 1
            if self._idle > self.patience:
                raise Idle
            return None
        piece = max(self._open, key=lambda each: each.urgency)
        self._open.remove(piece)
        try:
            return Done(token=piece.token, result=piece.function(*piece.args, silent))
        except Death as death:
            self._lose(piece, death)
            return self._ended.popleft()
        except Exception as error:  # noqa: BLE001 - as a worker does
            return Done(token=piece.token, error=error)

    def _lose(self, piece: Piece, death: Death) -> None:
        lost = [piece, *(each for each in self._open if each.worker == piece.worker)]
        self._open = [each for each in self._open if each.worker != piece.worker]
        self._ended += [Done(token=each.token, error=death, lost=True) for each in lost]


@dataclass(kw_only=True)
class World:
    """What surveys find and performing does, by relpath; all else is archived at once.

    Lists are used up: one entry for each try, and then all is well.
    """

    kills_surveys: set[str] = field(default_factory=set)
    breaks_surveys: set[str] = field(default_factory=set)
    survey_troubles: dict[str, list[FailureClass]] = field(default_factory=dict)
    kills: set[str] = field(default_factory=set)
    kills_once: set[str] = field(default_factory=set)
    breaks: set[str] = field(default_factory=set)
    failures: dict[str, list[FailureClass]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    surveyed: Counter[str] = field(default_factory=Counter)
    performed: list[tuple[str, ...]] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    temporaries: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def stands(self, _roots: Roots, archive: str, _nbytes: int) -> bool:
        return archive not in self.gone

    def survey(self, _roots: Roots, sources: tuple[Source, ...], _report: Report) -> list[Survey]:
        relpaths = {source.relpath for source in sources}
        self.surveyed.update(relpaths)
        if relpaths & self.kills_surveys:
            raise Death
        if relpaths & self.breaks_surveys:
            raise ValueError("boom")
        return [self._found(source) for source in sources]

    def _found(self, source: Source) -> Survey:
        trouble, left = None, self.survey_troubles.get(source.relpath)
        if left:
            trouble = Trouble(relpath=source.relpath, failure=left.pop(0), message="cannot be read")
        return Survey(
            source=source,
            is_tiff=source.relpath not in self.others,
            mode="byte-exact",
            page_nbytes=1000,
            page_count=1,
            segment_count=1,
            live_nbytes=1000,
            pixels_nbytes=1000,
            trouble=trouble,
        )

    def perform(
        self, _roots: Roots, jobs: tuple[Job, ...], temporaries: tuple[str, ...], _report: Report
    ) -> list[Outcome]:
        relpaths = tuple(job.source.relpath for job in jobs)
        self.performed.append(relpaths)
        self.temporaries += temporaries
        if self.kills_once.intersection(relpaths):
            self.kills_once.difference_update(relpaths)
            raise Death
        if self.kills.intersection(relpaths):
            raise Death
        if self.breaks.intersection(relpaths):
            raise ValueError("boom")
        return [self._outcome(job) for job in jobs]

    def _outcome(self, job: Job) -> Outcome:
        left = self.failures.get(job.source.relpath)
        if left:
            message = f"{job.source.relpath}: {left[0]} trouble"
            return Outcome(source=job.source, state="failed", failure=left.pop(0), message=message)
        self.finished.add(job.source.relpath)
        return Outcome(
            source=job.source,
            state="archived",
            archive=job.archive,
            mode=job.mode,
            sha256="ab" * 32,
            archive_nbytes=1,
        )

    def times_performed(self, relpath: str) -> int:
        return sum(relpath in piece for piece in self.performed)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(task, "survey", made.survey)
    monkeypatch.setattr(task, "perform", made.perform)
    monkeypatch.setattr(publish, "stands", made.stands)
    monkeypatch.setattr(flows, "_BACK_OFF_S", (0.0, 0.0))
    return made


Found = Source | Trouble | Excluded


@dataclass(kw_only=True)
class Share:
    """A source root that holds nothing, a ledger, and flows over what the walk is said to find."""

    folder: Path
    pulled: int = 0
    ticks: list[Tick] = field(default_factory=list)

    @contextmanager
    def flow(
        self, found: Iterable[Found], engine: FakeEngine, ledger: str = "ledger", **config: Any
    ) -> Iterator[Flow]:
        given = {"source": str(self.folder / "share"), "destination": str(self.folder / "archive")}
        resolved = Config.model_validate(given | {"settle": "0s"} | config)
        path = self.folder / ledger / "ledger.sqlite"
        with Ledger.open(
            path, source=given["source"], destination=given["destination"], config="{}"
        ) as opened:
            yield Flow(
                config=resolved,
                roots=Roots(**given),
                ledger=opened,
                engine=cast("Engine", engine),
                terms=Terms(
                    recipe=Recipe(), others=resolved.others, allowed=ALLOWED, reserved=RESERVED
                ),
                watch=self.ticks.append,
                found=self._walked(found),
            )

    def _walked(self, found: Iterable[Found]) -> Iterator[Found]:
        for item in found:
            self.pulled += 1
            yield item

    def run(
        self, found: Iterable[Found], engine: FakeEngine, ledger: str = "ledger", **config: Any
    ) -> Summary:
        """Go on until the end, and what the ledger says then."""
        with self.flow(found, engine, ledger, **config) as flow:
            flow.go()
            flow.ledger.finish(flow.stopped)
            return replace(flow.ledger.summary(), left_out=flow.left_out)

    def failures(self, ledger: str = "ledger") -> dict[str, tuple[str, str]]:
        """Class and message of each source that stands failed."""
        with Ledger.read(self.folder / ledger / "ledger.sqlite") as records:
            return {each.relpath: (each.failure, each.message) for each in records.failures()}

    def attempts(self, relpath: str) -> list[str]:
        with Ledger.read(self.folder / "ledger" / "ledger.sqlite") as records:
            return [attempt.outcome for attempt in records.attempts(relpath)]


@pytest.fixture
def share(tmp_path: Path) -> Share:
    return Share(folder=tmp_path)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


def source(relpath: str, size: int = 1000, mtime_ns: int = 5) -> Source:
    return Source(relpath=relpath, size=size, mtime_ns=mtime_ns, mode=0o644)


def sources(count: int, size: int = 1000) -> list[Source]:
    return [source(f"{number:05}.tif", size) for number in range(count)]


def counts(summary: Summary) -> dict[str, int]:
    return {state: tally.count for state, tally in summary.states.items()}


# --- what is held at once ---------------------------------------------------------------------


def test_windows_stay_bounded_over_thousands_of_sources(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "_MOST_WAITING", 800)
    ahead = 0

    def found() -> Iterator[Source]:
        nonlocal ahead
        for each in sources(5000, MIB):
            ahead = max(ahead, share.pulled - len(world.finished))
            yield each

    summary = share.run(found(), engine)

    assert counts(summary) == {"archived": 5000}
    assert len(world.finished) == 5000
    window = engine.workers * PER_WORKER
    assert engine.most["surveys"] <= window
    assert engine.most["performs"] <= window
    in_flight = window * 64
    assert 800 <= ahead <= 800 + flows._WALK_BATCH + in_flight
    assert max(world.surveyed.values()) == 1
    assert Counter(len(piece) for piece in world.performed).keys() <= set(range(1, 65))


def test_packing_begins_while_the_walk_goes_on(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "_MOST_WAITING", 300)
    finished_early: list[int] = []

    def found() -> Iterator[Source]:
        for each in sources(2000):
            finished_early.append(len(world.finished))
            yield each

    share.run(found(), engine)
    assert finished_early[-1] > 0


def test_jobs_that_are_put_aside_are_held_too(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share whose server hangs fails every source; the walk must not go on all the same."""
    monkeypatch.setattr(flows, "_MOST_WAITING", 800)
    monkeypatch.setattr(flows, "_BACK_OFF_S", (3600.0, 3600.0))
    engine.patience = 0
    many = sources(5000, 4 * MIB)
    world.failures = {each.relpath: ["transient"] * 9 for each in many}
    with share.flow(many, engine) as flow, pytest.raises(Idle):
        flow.go()
    in_flight = engine.workers * PER_WORKER * 16
    assert share.pulled <= 800 + flows._WALK_BATCH + in_flight


def test_nothing_is_remembered_of_sources_that_are_done(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(300)
    world.failures = {each.relpath: ["transient"] for each in many[::3]}
    world.kills_once = {many[1].relpath}
    with share.flow(many, engine) as flow:
        flow.go()
        kept = ("unsettled", "surveying", "waiting", "delayed", "performing")
        for name in (*kept, "suspects", "deaths", "back_offs"):
            assert not getattr(flow, name), name


# --- what goes to a worker --------------------------------------------------------------------


def test_the_largest_goes_first(share: Share, engine: FakeEngine, world: World) -> None:
    sizes = [BIG + (number * 7919) % 40 for number in range(40)]
    share.run([source(f"{number}.tif", size) for number, size in enumerate(sizes)], engine)
    begun = [sizes[int(piece[0].removesuffix(".tif"))] for piece in world.performed]
    assert begun == sorted(sizes, reverse=True)


def test_small_sources_go_together_and_large_ones_alone(
    share: Share, engine: FakeEngine, world: World
) -> None:
    large = [source(f"large-{number}.tif", BIG) for number in range(5)]
    middle = [source(f"middle-{number}.tif", 30 * MIB) for number in range(5)]
    small = sources(300, 1000)
    share.run([*small[:150], *large, *middle, *small[150:]], engine)
    size_of = {each.relpath: each.size for each in (*large, *middle, *small)}
    for piece in world.performed:
        assert len(piece) <= 128
        assert len(piece) == 1 or sum(size_of[relpath] for relpath in piece) <= 64 * MIB
    pieces_of = {relpath: piece for piece in world.performed for relpath in piece}
    assert len(pieces_of) == sum(map(len, world.performed)) == 310
    assert all(len(pieces_of[each.relpath]) == 1 for each in large)
    assert len(world.performed) <= 5 + 3 + 4


def test_a_piece_asks_for_the_memory_of_its_largest_job(
    share: Share, engine: FakeEngine, world: World
) -> None:
    share.run(sources(200), engine)
    assert world.finished
    for piece in engine.pieces:
        if piece.is_survey:
            assert piece.memory == RESERVED
        else:
            needs = [job.projected_bytes for job in piece.args[1]]
            assert piece.memory == max(needs) <= ALLOWED


def test_surveys_go_first(share: Share, engine: FakeEngine, world: World) -> None:
    share.run(sources(500), engine)
    assert world.finished
    assert min(piece.urgency for piece in engine.pieces if piece.function == world.survey) > max(
        piece.urgency for piece in engine.pieces if piece.function == world.perform
    )


def test_an_attempt_is_in_the_ledger_before_its_worker_has_it(
    share: Share, engine: FakeEngine, world: World
) -> None:
    """Else nobody would sweep what it leaves behind."""
    with share.flow(sources(3), engine) as flow:
        submit = engine.submit

        def checked(token: object, function: Any, *args: Any, **options: Any) -> None:
            if function == world.perform:
                flow.ledger.finish("as if it died now")
                assert set(args[2]) <= set(flow.ledger.leftovers())
                raise Death
            submit(token, function, *args, **options)

        engine.submit = checked  # type: ignore[method-assign]
        with pytest.raises(Death):
            flow.go()


def test_temporary_names_are_all_different_also_those_of_further_tries(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(50)
    world.failures = {many[7].relpath: ["transient", "transient"]}
    world.breaks = {many[9].relpath}
    share.run(many, engine)
    assert len(set(world.temporaries)) == len(world.temporaries) > 50


def test_two_ledgers_over_one_destination_use_different_temporary_names(
    share: Share, world: World
) -> None:
    """Else one run would remove, or publish as its own, what the other is writing just now.

    A config whose ledger belongs to another is told to name one of its own; and a ledger that was
    lost begins again at run 1 while an old worker may still be there.
    """
    share.run(sources(3), FakeEngine(), ledger="one")
    share.run(sources(3), FakeEngine(), ledger="two")
    assert len(world.temporaries) == 6
    assert len(set(world.temporaries)) == 6


# --- workers that die -------------------------------------------------------------------------


def singles(world: World, relpath: str) -> int:
    return sum(piece == (relpath,) for piece in world.performed)


def test_a_source_that_kills_its_worker_twice_is_poison_and_harms_no_other(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(40)
    killer = many[20].relpath
    world.kills = {killer}
    summary = share.run(many, engine)
    assert counts(summary) == {"archived": 39, "failed": 1}
    ((failed, (failure, message)),) = share.failures().items()
    assert (failed, failure) == (killer, "poison")
    assert killer in message
    assert 1 <= singles(world, killer) <= 2, "alone, before it is given up"


@pytest.mark.parametrize("count", [3, 40, 300])
@pytest.mark.parametrize("size", [1000, BIG])
def test_bystanders_are_not_blamed(
    share: Share, engine: FakeEngine, world: World, count: int, size: int
) -> None:
    """What else its worker was handed dies with the killer, and is as innocent as before."""
    many = sources(count, size)
    world.kills = {many[0].relpath, many[count // 2].relpath, many[-1].relpath}
    summary = share.run(many, engine)
    assert set(share.failures()) == world.kills
    assert counts(summary).get("archived", 0) == count - 3


def test_after_a_death_no_more_is_handed_out_at_once_than_before(
    share: Share, engine: FakeEngine, world: World
) -> None:
    """What waits at a worker dies with it: after a death of all times the window is short."""
    many = sources(300)
    world.kills = {many[5].relpath}
    share.run(many, engine)
    assert engine.most["performs"] <= engine.workers * PER_WORKER


def test_a_source_whose_worker_died_is_tried_by_itself(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = [*sources(60), source("killer.tif", 1000)]
    world.kills = {"killer.tif"}
    share.run(many, engine)
    tries = [piece for piece in world.performed if "killer.tif" in piece]
    assert tries[0] != ("killer.tif",)
    assert set(tries[1:]) == {("killer.tif",)}


def test_a_source_that_was_tried_is_not_put_behind_others_in_one_piece(
    share: Share, engine: FakeEngine, world: World
) -> None:
    """One that killed its worker waits while larger and smaller ones wait too."""
    engine.workers = 1
    many = [source("killer.tif", BIG), *sources(300, 2 * MIB)]
    world.kills = {"killer.tif"}
    share.run(many, engine)
    assert {piece for piece in world.performed if "killer.tif" in piece} == {("killer.tif",)}


def test_one_death_is_nobody_s_end(share: Share, engine: FakeEngine, world: World) -> None:
    many = sources(100)
    world.kills_once = {many[50].relpath}
    assert counts(share.run(many, engine)) == {"archived": 100}


def test_a_source_whose_survey_kills_twice_is_poison_and_harms_no_other(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(200)
    world.kills_surveys = {many[70].relpath}
    summary = share.run(many, engine)
    assert {relpath: failure for relpath, (failure, _) in share.failures().items()} == {
        many[70].relpath: "poison"
    }
    assert counts(summary) == {"archived": 199, "failed": 1}


def test_after_the_death_of_a_survey_no_more_is_handed_out_at_once_than_before(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(200)
    world.kills_surveys = {many[70].relpath}
    share.run(many, engine)
    assert engine.most["surveys"] <= engine.workers * PER_WORKER


# --- faults of ours ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["breaks", "breaks_surveys"])
@pytest.mark.parametrize("count", [1, 150])
def test_an_exception_fails_one_source_and_asks_for_a_report(
    share: Share, engine: FakeEngine, world: World, where: str, count: int
) -> None:
    many = sources(count)
    odd = many[count // 2].relpath
    setattr(world, where, {odd})
    summary = share.run(many, engine)
    assert counts(summary).get("archived", 0) == count - 1
    ((failed, (failure, message)),) = share.failures().items()
    assert (failed, failure) == (odd, "permanent")
    for word in (odd, "ValueError", "boom", "report"):
        assert word in message
    assert summary.stopped is None


# --- what passes by itself --------------------------------------------------------------------


def test_what_is_transient_is_tried_again_and_each_try_is_recorded(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(20)
    world.failures = {many[3].relpath: ["transient", "transient"]}
    summary = share.run(many, engine)
    assert counts(summary) == {"archived": 20}
    assert share.attempts(many[3].relpath) == ["failed", "failed", "archived"]
    assert share.attempts(many[4].relpath) == ["archived"]
    assert share.ticks[-1].failed_count == 0


def test_what_stays_transient_fails_after_three_tries(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(20)
    world.failures = {many[3].relpath: ["transient"] * 9}
    summary = share.run(many, engine)
    assert counts(summary) == {"archived": 19, "failed": 1}
    assert share.attempts(many[3].relpath) == ["failed"] * 3
    assert share.failures() == {
        many[3].relpath: ("transient", f"{many[3].relpath}: transient trouble")
    }
    assert summary.stopped is None


def test_the_next_run_tries_it_again(share: Share, world: World) -> None:
    many = sources(3)
    world.failures = {many[0].relpath: ["transient"] * 3}
    assert counts(share.run(many, FakeEngine())) == {"archived": 2, "failed": 1}
    assert counts(share.run(many, FakeEngine())) == {"archived": 3}


def test_a_back_off_is_waited_for_while_others_go_on(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(flows, "_BACK_OFF_S", (50.0, 500.0))
    monkeypatch.setattr(flows, "time", SimpleNamespace(monotonic=lambda: now_s, time=time.time))
    many = sources(30, BIG)
    world.failures = {many[0].relpath: ["transient", "transient"]}
    begun_s: list[float] = []
    perform = world.perform

    def timed(*args: Any) -> list[Outcome]:
        if args[1][0].source == many[0]:
            begun_s.append(now_s)
        return perform(*args)

    def watch(_tick: Tick) -> None:
        nonlocal now_s
        now_s += 5.0

    monkeypatch.setattr(task, "perform", timed)
    with share.flow(many, engine) as flow:
        flow.watch = watch
        flow.go()
    assert len(world.finished) == 30
    first, second, third = begun_s
    assert 50 <= second - first < 250
    assert 500 <= third - second < 700


@pytest.mark.parametrize("tries", [1, 2])
def test_a_survey_that_failed_for_a_moment_is_tried_again(
    share: Share, engine: FakeEngine, world: World, tries: int
) -> None:
    many = sources(20)
    world.survey_troubles = {many[3].relpath: ["transient"] * tries}
    assert counts(share.run(many, engine)) == {"archived": 20}


def test_a_survey_that_fails_for_good_is_recorded(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(20)
    world.survey_troubles = {many[3].relpath: ["permanent"]}
    assert counts(share.run(many, engine)) == {"archived": 19, "failed": 1}
    assert share.failures() == {many[3].relpath: ("permanent", "cannot be read")}
    assert share.attempts(many[3].relpath) == []


@pytest.mark.parametrize("failure", ["permanent", "poison"])
def test_what_cannot_be_mended_is_not_tried_again(
    share: Share, engine: FakeEngine, world: World, failure: FailureClass
) -> None:
    many = sources(20)
    world.failures = {many[3].relpath: [failure] * 9}
    assert counts(share.run(many, engine)) == {"archived": 19, "failed": 1}
    assert world.times_performed(many[3].relpath) == 1


# --- the destination --------------------------------------------------------------------------


def test_a_full_destination_stops_the_run_and_what_waits_is_counted(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = [source(f"{number:03}.tif", BIG + 100 - number) for number in range(100)]
    world.failures = {"010.tif": ["destination"]}
    summary = share.run(many, engine)
    assert summary.stopped == "010.tif: destination trouble"
    assert share.failures() == {"010.tif": ("destination", "010.tif: destination trouble")}
    # The largest go first, so all before it are done; so is what was in flight beside it.
    done = len(world.finished)
    assert 10 <= done < 10 + engine.workers * PER_WORKER
    assert len(world.performed) == done + 1
    assert counts(summary) == {"archived": done, "failed": 1}
    assert summary.waiting.count == 100 - done - 1
    assert summary.waiting.source_nbytes == sum(
        each.size for each in many if each.relpath not in {*world.finished, "010.tif"}
    )
    assert summary.trouble_count == 1


def test_the_walk_ends_where_the_run_stops(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "_MOST_WAITING", 300)
    many = sources(5000, BIG)
    world.failures = {each.relpath: ["destination"] for each in many}
    summary = share.run(many, engine)
    assert summary.stopped
    assert share.pulled < 1000
    met = sum(counts(summary).values()) + summary.waiting.count
    assert met == share.pulled
    assert not world.finished


def test_the_next_run_goes_on_where_a_full_destination_stopped_it(
    share: Share, world: World
) -> None:
    many = sources(50, BIG)
    world.failures = {many[10].relpath: ["destination"]}
    first = share.run(many, FakeEngine())
    assert first.stopped
    before = set(world.finished)
    world.performed.clear()
    second = share.run(many, FakeEngine())
    assert second.stopped is None
    assert counts(second) == {"archived": 50}
    assert before.isdisjoint(relpath for piece in world.performed for relpath in piece)


def test_others_of_a_batch_in_which_the_destination_filled_up_are_kept(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = sources(60)
    world.failures = {many[30].relpath: ["destination"]}
    summary = share.run(many, engine)
    assert summary.stopped
    assert counts(summary) == {"archived": 59, "failed": 1}


def test_a_death_after_the_stop_hands_nothing_out_again(
    share: Share, engine: FakeEngine, world: World
) -> None:
    """A batch that is lost while the run winds down waits for the next one."""
    full = source("full.tif", 64 * MIB)
    batch = sources(60, MIB)
    world.failures = {"full.tif": ["destination"]}
    world.kills = {batch[0].relpath}
    summary = share.run([full, *batch], engine)
    assert summary.stopped
    stop = world.performed.index(("full.tif",))
    assert len(world.performed) <= stop + engine.workers * PER_WORKER
    assert summary.waiting.count == 60


def test_surveys_after_the_stop_hand_nothing_out_again(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "_SURVEYS_FIRST", 0)  # so that the stop comes between surveys
    engine.workers = 1
    many = sources(600, BIG)
    world.failures = {each.relpath: ["destination"] for each in many}
    summary = share.run(many, engine)
    assert summary.stopped
    assert len(world.performed) <= PER_WORKER
    assert sum(counts(summary).values()) + summary.waiting.count == share.pulled


# --- what is met and not worked on ------------------------------------------------------------


def test_what_is_settled_is_not_handed_out(share: Share, world: World) -> None:
    many = [*sources(300), source("notes.txt")]
    world.others = {"notes.txt"}
    first = share.run(many, FakeEngine())
    assert counts(first) == {"archived": 300, "reported": 1}
    idle = FakeEngine()
    second = share.run(many, idle)
    assert idle.pieces == []
    assert counts(second) == counts(first)
    assert second.settled.count == 301
    last = share.ticks[-1]
    assert (last.found_count, last.settled_count, last.done_count) == (301, 301, 0)


def test_a_changed_source_goes_to_a_further_version(share: Share, world: World) -> None:
    share.run(sources(3), FakeEngine())
    changed = [*sources(2), source("00002.tif", 1000, mtime_ns=6)]
    engine = FakeEngine()
    share.run(changed, engine)
    jobs = [job for piece in engine.pieces if not piece.is_survey for job in piece.args[1]]
    # The archive that stands is looked at first: it may hold just this content.
    names = [(job.archive, job.further[0]) for job in jobs]
    assert names == [("00002.tif.zarr.zip", "00002.tif.v2.zarr.zip")]


def test_an_archive_that_is_gone_is_made_again(share: Share, world: World) -> None:
    share.run(sources(3), FakeEngine())
    world.gone = {"00001.tif.zarr.zip"}
    engine = FakeEngine()
    summary = share.run(sources(3), engine)
    jobs = [job for piece in engine.pieces if not piece.is_survey for job in piece.args[1]]
    assert [job.archive for job in jobs] == ["00001.tif.zarr.zip"]
    assert (counts(summary), summary.settled.count) == ({"archived": 3}, 2)


def test_a_young_source_is_left_alone(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 10**18
    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: now_ns / 1e9)
    monkeypatch.setattr(verdicts, "time", clock)
    minutes = {"old": -11, "young": -9, "now": 0, "ahead": 9, "far-ahead": 11}
    many = [
        source(f"{name}.tif", mtime_ns=now_ns + minute * 60 * 10**9)
        for name, minute in minutes.items()
    ]
    summary = share.run(many, engine, settle="10m")
    assert counts(summary) == {"archived": 2, "changing": 3}
    assert set(world.surveyed) == {"old.tif", "far-ahead.tif"}
    assert counts(share.run(many, FakeEngine(), settle="0s")) == {"archived": 5}


def test_troubles_and_what_rules_left_out_are_accounted_for(
    share: Share, engine: FakeEngine, world: World
) -> None:
    trouble = Trouble(relpath="locked", failure="permanent", message="locked: cannot be read")
    left_out = [
        Excluded(relpath=".hidden", size=7, why="hidden"),
        Excluded(relpath="Thumbs.db", size=5, why="litter"),
    ]
    summary = share.run([trouble, *sources(2), *left_out], engine)
    assert world.finished
    assert counts(summary) == {"archived": 2}
    assert (summary.trouble_count, summary.troubles) == (1, (trouble,))
    assert summary.left_out == {
        "hidden": Tally(count=1, source_nbytes=7),
        "litter": Tally(count=1, source_nbytes=5),
    }
    last = share.ticks[-1]
    assert (last.found_count, last.failed_count, last.walk_ended) == (2, 1, True)


def test_nothing_found_is_an_end_too(share: Share, engine: FakeEngine, world: World) -> None:
    assert counts(share.run([], engine)) == {}
    assert not world.performed
    assert share.ticks[-1].walk_ended


# --- while it goes on -------------------------------------------------------------------------


def test_ticks_only_grow_and_end_where_all_is_done(
    share: Share, engine: FakeEngine, world: World
) -> None:
    many = [source(f"{number}.tif", 1000 + number) for number in range(1000)]
    world.failures = {many[5].relpath: ["transient"], many[6].relpath: ["permanent"]}
    world.kills = {many[7].relpath}
    share.run(many, engine)
    for name in ("found_count", "found_nbytes", "done_count", "done_nbytes", "failed_count"):
        values = [getattr(tick, name) for tick in share.ticks]
        assert values == sorted(values), name
    last = share.ticks[-1]
    assert last.walk_ended
    assert (last.done_count, last.failed_count) == (1000, len(share.failures()))
    assert last.done_nbytes == last.found_nbytes == sum(each.size for each in many)
    assert all(tick.done_count <= tick.found_count for tick in share.ticks)
    assert any(tick.running for tick in share.ticks)
    assert all(len(tick.running) <= engine.workers for tick in share.ticks)


def test_bytes_under_way_are_told(share: Share, engine: FakeEngine, world: World) -> None:
    engine.underway = {1: 30, 2: 12}
    share.run(sources(1), engine)
    assert world.finished
    assert share.ticks[0].underway_nbytes == 42


def test_a_run_that_waits_shows_that_it_lives(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(flows, "time", SimpleNamespace(monotonic=lambda: now_s, time=time.time))
    waits = 100
    ask = engine.next

    def slow(timeout_s: float) -> Done | None:
        """A worker that is busy for a long time."""
        nonlocal waits, now_s
        if waits and world.surveyed:
            waits -= 1
            now_s += 1.0
            return None
        return ask(timeout_s)

    engine.next = slow  # type: ignore[method-assign]
    with share.flow(sources(1), engine) as flow:
        beats: list[float] = []
        beat = flow.ledger.heartbeat

        def counted() -> None:
            beats.append(now_s)
            beat()

        monkeypatch.setattr(flow.ledger, "heartbeat", counted)
        flow.go()
    assert waits == 0
    assert 3 <= len(beats) <= 4, "every half minute, not at every look"


def test_a_heartbeat_is_seen_from_outside(
    share: Share, engine: FakeEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "_BEAT_S", -1.0)
    seen: list[int] = []
    waits = 3
    ask = engine.next
    with share.flow(sources(1), engine) as flow:

        def slow(timeout_s: float) -> Done | None:
            nonlocal waits
            if waits and world.surveyed:
                waits -= 1
                holder = flow.ledger.holder()
                assert holder is not None
                seen.append(holder.heartbeat_ns)
                return None
            return ask(timeout_s)

        engine.next = slow  # type: ignore[method-assign]
        flow.go()
    assert len(seen) == 3
    assert seen[0] < seen[1] < seen[2]


def test_a_run_waits_for_workers_and_does_not_spin(
    share: Share, engine: FakeEngine, world: World
) -> None:
    share.run(sources(1000), engine)
    assert world.finished
    walked = [timeout_s for timeout_s in engine.asked_s if timeout_s == 0]
    assert len(walked) <= 1000 // flows._WALK_BATCH + 2
    assert set(engine.asked_s) == {0.0, flows._TICK_S}
