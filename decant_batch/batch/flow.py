"""A run that goes on: what is handed to workers next, and what is made of what comes back.

What is held at once is bounded everywhere: the walk waits while enough is surveyed, workers are
handed a few pieces of work each, and a future is let go once its outcome is in the ledger.
"""

from __future__ import annotations

import heapq
import itertools
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from decant_batch.batch import plan, publish, task, verdicts
from decant_batch.batch.config import Config
from decant_batch.batch.engine import Done, Engine
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import (
    Excluded,
    Job,
    Outcome,
    Roots,
    SeriesOutcome,
    SeriesSurvey,
    Source,
    Survey,
    Tally,
    Tick,
    Trouble,
    Why,
)
from decant_batch.batch.plan import Terms
from decant_batch.batch.steps import Step, Steps
from decant_batch.batch.verdicts import is_young, total_nbytes

Watch = Callable[[Tick], None]

_WALK_BATCH = 256
_SURVEY_BATCH = 64
# Small sources go to a worker together, up to this much: a task costs the scheduler a millisecond.
_BATCH_NBYTES = 64 << 20
_BATCH_COUNT = 128
# Each worker has one piece of work and the next; what it was handed dies with it.
_PIECES_PER_WORKER = 2
_MOST_WAITING = 4096
# Transient failures are tried again after these many seconds, a job whose worker died at once.
_BACK_OFF_S = (2.0, 10.0)
_TICK_S = 0.5
_BEAT_S = 30.0
_SURVEYS_FIRST = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Jobs handed to a worker together."""

    jobs: tuple[Job, ...]
    temporaries: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Flow:
    """A run that goes on: what waits for what. Sources move from left to right::

    found -> unsettled -> surveying -> waiting -> performing -> recorded
                                          ^-- delayed <--'
    """

    config: Config
    roots: Roots
    ledger: Ledger
    engine: Engine
    terms: Terms
    watch: Watch
    found: Iterator[Source | Trouble | Excluded]
    unsettled: deque[Source] = field(default_factory=deque)
    surveying: dict[int, tuple[Source, ...]] = field(default_factory=dict)
    waiting: list[tuple[int, int, Job]] = field(default_factory=list)
    delayed: list[tuple[float, int, Job | Source]] = field(default_factory=list)
    performing: dict[int, _Work] = field(default_factory=dict)
    steps: Steps = field(init=False)
    stepping: dict[int, Step] = field(default_factory=dict)
    next_steps: deque[Step] = field(default_factory=deque)
    suspects: deque[Job | Source | Step] = field(default_factory=deque)
    alone: int | None = None
    deaths: Counter[str] = field(default_factory=Counter)
    back_offs: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    # Temporary names of two runs differ, also where a ledger was lost and begins anew.
    label: str = field(default_factory=lambda: secrets.token_hex(4))
    tick: Tick = field(default_factory=Tick)
    left_out: dict[Why, Tally] = field(default_factory=dict)
    stopped: str | None = None
    beat_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """The series know the same ledger and terms, and tell what became of them here."""
        self.steps = Steps(
            ledger=self.ledger,
            roots=self.roots,
            terms=self.terms,
            settle_s=self.config.settle,
            label=self.label,
            rules=self.config.rules,
            numbers=self.numbers,
            record=self._record_series,
        )

    def go(self) -> None:
        """Work until nothing is left, or until the run has to stop."""
        while True:
            has_walked = self._feed()
            self.watch(self._now())
            if not self._has_more():
                return
            done = self.engine.next(0.0 if has_walked else _TICK_S)
            if done is not None:
                self._take(done)
            elif time.monotonic() - self.beat_s > _BEAT_S:
                self.ledger.heartbeat()
                self.beat_s = time.monotonic()

    def _feed(self) -> bool:
        """Hand out what there is room for; True where a batch of the walk was met."""
        if self.stopped is not None:
            return False
        if self.suspects or self.alone is not None:
            self._try_alone()
            return False
        self._undelay()
        self._perform()
        has_walked = self._has_room() and not self.tick.walk_ended
        if has_walked:
            self._walk_on()
        self._survey()
        self._step()
        return has_walked

    def _has_more(self) -> bool:
        if self.surveying or self.performing or self.stepping:
            return True
        left = (
            self.waiting
            or self.delayed
            or self.unsettled
            or self.suspects
            or self.next_steps
            or not self.tick.walk_ended
        )
        return bool(left) and self.stopped is None

    def _try_alone(self) -> None:
        if self.surveying or self.performing or self.stepping:
            return
        suspect = self.suspects.popleft()
        if isinstance(suspect, Job):
            self.alone = self._submit([suspect])
        elif isinstance(suspect, Step):
            self.alone = self._submit_step(suspect)
        else:
            self.alone = self._submit_survey((suspect,))

    # --- series

    def _step(self) -> None:
        """Hand out steps of series, once the walk has ended and all members are known."""
        room = self.engine.workers * _PIECES_PER_WORKER
        while self.tick.walk_ended and len(self.stepping) < room and self._has_room():
            if self.next_steps:
                self._submit_step(self.next_steps.popleft())
            elif not self._follow(self.steps.next()):
                return

    def _submit_step(self, step: Step) -> int:
        token = next(self.numbers)
        self.stepping[token] = step
        self.engine.submit(
            token, step.function, self.roots, *step.arguments, memory=step.memory, urgency=0
        )
        return token

    def _stepped(self, step: Step, result: SeriesSurvey | Outcome) -> None:
        self._follow(self.steps.take(step.series, result))

    def _follow(self, follows: Step | list[Source] | None) -> bool:
        """Take up what follows a step of a series; False where nothing does."""
        if isinstance(follows, Step):
            self.next_steps.append(follows)
        elif follows is not None:
            self._take_up(follows)
        return follows is not None

    def _record_series(self, result: SeriesOutcome) -> None:
        """Record what became of a series, of each member the same."""
        first = result.outcome
        if first.failure == "destination":
            self.stopped = first.message
        self.ledger.record_series(verdicts.of_members(result))
        self._count(verdicts.of_members(result))

    # --- walk and survey

    def _has_room(self) -> bool:
        surveying = sum(map(len, self.surveying.values()))
        held = len(self.waiting) + len(self.delayed) + len(self.unsettled) + surveying
        return held < _MOST_WAITING

    def _survey(self) -> None:
        room = self.engine.workers * _PIECES_PER_WORKER
        while self.unsettled and len(self.surveying) < room:
            count = min(_SURVEY_BATCH, len(self.unsettled))
            self._submit_survey(tuple(self.unsettled.popleft() for _ in range(count)))

    def _submit_survey(self, sources: tuple[Source, ...]) -> int:
        token = next(self.numbers)
        self.surveying[token] = sources
        self.engine.submit(
            token,
            task.survey,
            self.roots,
            sources,
            memory=self.terms.reserved,
            urgency=_SURVEYS_FIRST,
        )
        return token

    def _walk_on(self) -> None:
        """One batch of the walk: what needs work is unsettled, the rest is recorded."""
        batch = list(itertools.islice(self.found, _WALK_BATCH))
        if not batch:
            self.tick = replace(self.tick, walk_ended=True)
            self.ledger.walked()
            return
        sources = [each for each in batch if isinstance(each, Source)]
        troubles = [each for each in batch if isinstance(each, Trouble)]
        if troubles:
            self.ledger.record_troubles(troubles)
        for each in batch:
            if isinstance(each, Excluded):
                self.left_out[each.why] = self.left_out.get(each.why, Tally()).plus(each.size)
        unsettled = self._unsettled(sources) if sources else []
        members = self.steps.enroll(sources)
        alone = [each for each in unsettled if each.relpath not in members]
        self.tick = replace(
            self.tick,
            found_count=self.tick.found_count + len(sources),
            found_nbytes=self.tick.found_nbytes + total_nbytes(sources),
            settled_count=self.tick.settled_count + len(sources) - len(unsettled),
            settled_nbytes=self.tick.settled_nbytes
            + total_nbytes(sources)
            - total_nbytes(unsettled),
            failed_count=self.tick.failed_count + len(troubles),
        )
        self._take_up(alone)

    def _take_up(self, sources: Iterable[Source]) -> None:
        """Have sources surveyed; what may still be written is left for another run."""
        for source in sources:
            if is_young(source, self.config.settle):
                self._record([verdicts.young(source)])
            else:
                self.unsettled.append(source)

    def _unsettled(self, sources: list[Source]) -> list[Source]:
        stands = partial(publish.stands, self.roots)
        return self.ledger.unsettled(sources, self.config.others, stands)

    # --- plan and perform

    def _plan(self, surveys: Iterable[Survey]) -> None:
        surveys = [survey for survey in surveys if not self._is_put_off(survey)]
        versions = self.ledger.versions(survey.source for survey in surveys)
        settled = []
        for survey in surveys:
            bundle = self.steps.bundle_of(survey.source)
            if bundle is not None:
                item = plan.bundle(survey, bundle, self.terms)
            else:
                item = plan.job(survey, self.terms, versions[survey.source.relpath])
            if isinstance(item, Job):
                self._wait(item)
            else:
                settled.append(item)
        self._record(settled)

    def _is_put_off(self, survey: Survey) -> bool:
        """True where a source could not be read just now and is surveyed again in a while."""
        trouble = survey.trouble
        return (
            trouble is not None
            and trouble.failure == "transient"
            and self._back_off(survey.source.relpath, survey.source)
        )

    def _wait(self, job: Job) -> None:
        # The largest first: a run must not end with one worker busy on a job begun last.
        heapq.heappush(self.waiting, (-job.source.size, next(self.numbers), job))

    def _undelay(self) -> None:
        while self.delayed and self.delayed[0][0] <= time.monotonic():
            item = heapq.heappop(self.delayed)[-1]
            if isinstance(item, Job):
                self._wait(item)
            else:
                self.unsettled.appendleft(item)

    def _perform(self) -> None:
        room = self.engine.workers * _PIECES_PER_WORKER
        while self.waiting and len(self.performing) < room:
            self._submit(self._next_batch())

    def _next_batch(self) -> list[Job]:
        """The largest job that waits, with more where they are small together."""
        jobs = [heapq.heappop(self.waiting)[-1]]
        nbytes = jobs[0].source.size
        while self.waiting and len(jobs) < _BATCH_COUNT:
            nbytes += self.waiting[0][-1].source.size
            if nbytes > _BATCH_NBYTES:
                break
            jobs.append(heapq.heappop(self.waiting)[-1])
        return jobs

    def _submit(self, jobs: list[Job]) -> int:
        token = next(self.numbers)
        temporaries = tuple(
            task.temporary_name(job.archive, self.label, next(self.numbers)) for job in jobs
        )
        self.ledger.begin(jobs, temporaries)
        self.performing[token] = _Work(jobs=tuple(jobs), temporaries=temporaries)
        self.engine.submit(
            token,
            task.perform,
            self.roots,
            tuple(jobs),
            temporaries,
            memory=max(job.projected_bytes for job in jobs),
            urgency=0,
        )
        return token

    # --- what comes back

    def _take(self, done: Done) -> None:
        token = done.token
        assert isinstance(token, int)
        was_alone, self.alone = token == self.alone, None
        sources = self.surveying.pop(token, ())
        work = self.performing.pop(token, None)
        step = self.stepping.pop(token, None)
        if done.error is not None:
            items = (step,) if step else work.jobs if work else sources
            self._suspect(done, items, was_alone=was_alone)
        elif step is not None:
            self._stepped(step, done.result)
        elif work is not None:
            self._settle(work, done.result)
        else:
            self._plan(done.result)

    def _suspect(
        self, done: Done, items: Sequence[Job | Source | Step], *, was_alone: bool
    ) -> None:
        """Blame the one that was alone and failed us; where there were others, try each alone."""
        if not was_alone:
            self.suspects.extend(items)
            return
        (item,) = items
        source = _source_of(item)
        self.deaths[source.relpath] += done.lost
        if done.lost and self.deaths[source.relpath] < verdicts.MOST_DEATHS:
            self.suspects.extend(items)
        elif isinstance(item, Step):
            outcome = verdicts.blamed(source, done.error, lost=done.lost)
            self._record_series(SeriesOutcome(series=item.series, outcome=outcome))
        else:
            self._record([verdicts.blamed(source, done.error, lost=done.lost)])

    def _settle(self, work: _Work, outcomes: list[Outcome]) -> None:
        """Record outcomes; what a second try may mend waits for it."""
        again = {}
        for job, outcome in zip(work.jobs, outcomes, strict=True):
            if outcome.failure == "transient" and self._back_off(job.source.relpath, job):
                again[outcome.source.relpath] = outcome
            if outcome.failure == "destination":
                self.stopped = outcome.message
        self.ledger.record(list(again.values()))
        self._record([each for each in outcomes if each.source.relpath not in again])

    def _back_off(self, relpath: str, item: Job | Source) -> bool:
        """Put work aside for a while; False where it was tried often enough."""
        times = self.back_offs[relpath]
        if times >= len(_BACK_OFF_S):
            return False
        self.back_offs[relpath] += 1
        at_s = time.monotonic() + _BACK_OFF_S[times]
        heapq.heappush(self.delayed, (at_s, next(self.numbers), item))
        return True

    def _record(self, outcomes: list[Outcome]) -> None:
        bundles = [each for each in outcomes if each.source.relpath in self.steps.bundles]
        outcomes = [each for each in outcomes if each.source.relpath not in self.steps.bundles]
        if bundles:
            self.ledger.bundle(bundles)
            closing = [self.steps.bundled(outcome) for outcome in bundles]
            self.next_steps.extend(step for step in closing if step is not None)
        if outcomes:
            self.ledger.record(outcomes)
            self._count(outcomes)

    def _count(self, outcomes: Iterable[Outcome]) -> None:
        count, nbytes, failed = 0, 0, 0
        for outcome in outcomes:
            self.deaths.pop(outcome.source.relpath, None)
            self.back_offs.pop(outcome.source.relpath, None)
            count, nbytes = count + 1, nbytes + outcome.source.size
            failed += outcome.state == "failed"
        self.tick = replace(
            self.tick,
            done_count=self.tick.done_count + count,
            done_nbytes=self.tick.done_nbytes + nbytes,
            failed_count=self.tick.failed_count + failed,
        )

    def _now(self) -> Tick:
        running = [work.jobs[0].source.relpath for work in self.performing.values()]
        return replace(
            self.tick,
            underway_nbytes=sum(self.engine.underway.values()),
            running=tuple(running[: self.engine.workers]),
        )


def _source_of(item: Job | Source | Step) -> Source:
    """The source that a piece of work is known by; of a series its first member."""
    if isinstance(item, Source):
        return item
    return item.series.members[0] if isinstance(item, Step) else item.source
