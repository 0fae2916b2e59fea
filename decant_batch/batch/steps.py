"""The series of a run: which step of one is next, and what is made of what comes back.

::

    survey ── consolidated ── pack ─────────────────────── recorded
          └── nested ── a bundle for each member ── close ──'

Bundles go the way of all jobs, through the flow; here it is counted which are still out. A member
that fails or changes leaves the others' bundles where they are: the next run goes on from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decant_batch.archive.many import Many
from decant_batch.archive.series import bundle_name
from decant_batch.batch import plan, publish, series, task
from decant_batch.batch.guess import Guess
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import (
    Closing,
    Enrolled,
    Nesting,
    Outcome,
    Roots,
    Series,
    SeriesJob,
    SeriesOutcome,
    SeriesSurvey,
    Source,
)
from decant_batch.batch.plan import Terms
from decant_batch.batch.series import Rule
from decant_batch.batch.verdicts import is_young


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One piece of work about a series, for a worker that has ``memory`` bytes left."""

    series: Series
    function: Callable[..., Any]
    arguments: tuple[object, ...]
    memory: int


@dataclass(slots=True, kw_only=True)
class _Nested:
    """A nested series whose bundles are being made; ``out`` counts those that are missing.

    ``hashes`` are those of the bundles that are there, by their members' paths.
    """

    series: Series
    staging: str
    reason: str
    hashes: dict[str, str] = field(default_factory=dict)
    out: int = 0
    trouble: Outcome | None = None


@dataclass(slots=True, kw_only=True)
class Steps:
    """The series of a run that goes on; ``label`` and ``numbers`` make temporary names."""

    ledger: Ledger
    roots: Roots
    terms: Terms
    settle_s: float
    label: str
    rules: Sequence[Rule | Guess]
    numbers: Iterator[int]
    record: Callable[[SeriesOutcome], None]
    waiting: Iterator[int] | None = None
    # By the member's path: its series, and which member of it it is.
    bundles: dict[str, tuple[_Nested, int]] = field(default_factory=dict)

    def enroll(self, sources: Sequence[Source]) -> set[str]:
        """Record which of the sources are members of series; their paths."""
        placed = [(source, series.place(source.relpath, self.rules)) for source in sources]
        members = [(source, found) for source, found in placed if found is not None]
        if members:
            self.ledger.enroll(members)
        return {source.relpath for source, _ in members}

    def next(self) -> Step | list[Source] | None:
        """The survey of the next series that has work left; None where there is none left.

        A source that is alone in what was taken for a series comes back, to be packed alone.
        Call it when the walk has ended: before that, members may be missing.
        """
        if self.waiting is None:
            self.waiting = iter(self.ledger.open_series())
        for number in self.waiting:
            enrolled = self.ledger.series(number)
            found = _series(enrolled)
            if found.found != "declared" and len(found.members) == 1:
                return list(found.members)
            problem = _refusal(enrolled, found) or self._young(found)
            if problem is None:
                return self._step(found, task.survey_series, found)
            self.record(SeriesOutcome(series=found, outcome=problem))
        return None

    def take(self, found: Series, result: SeriesSurvey | Outcome) -> Step | list[Source] | None:
        """What follows a step of a series: another one, members that need a bundle, or nothing."""
        if isinstance(result, Outcome):
            self._settled(SeriesOutcome(series=found, outcome=result))
            return None
        item = plan.series(found, result, self.terms)
        if isinstance(item, SeriesJob):
            return self._pack(item)
        if isinstance(item, Nesting):
            return self._nest(item)
        self.record(SeriesOutcome(series=found, outcome=item))
        return None

    def bundle_of(self, source: Source) -> str | None:
        """Where a member's bundle goes; None for a source that is no member of a nested series."""
        if source.relpath not in self.bundles:
            return None
        nested, number = self.bundles[source.relpath]
        return _bundle(nested.staging, number)

    def bundled(self, outcome: Outcome) -> Step | None:
        """Take the outcome of a bundle; the closing step where it was the last."""
        nested, _number = self.bundles.pop(outcome.source.relpath)
        nested.out -= 1
        if outcome.state == "archived":
            nested.hashes[outcome.source.relpath] = outcome.sha256
        else:
            nested.trouble = nested.trouble or outcome
        return self._closed(nested)

    def _closed(self, nested: _Nested) -> Step | None:
        if nested.out:
            return None
        if nested.trouble is not None:
            self.record(SeriesOutcome(series=nested.series, outcome=_held_back(nested)))
            return None
        closing = Closing(
            series=nested.series,
            staging=nested.staging,
            hashes=tuple(nested.hashes[source.relpath] for source in nested.series.members),
            archives=plan.series_names(nested.series.stem, "folder"),
            reason=nested.reason,
        )
        return self._step(nested.series, task.close_series, closing)

    def _step(self, found: Series, function: Callable[..., Any], *arguments: object) -> Step:
        return Step(
            series=found, function=function, arguments=arguments, memory=self.terms.reserved
        )

    def _pack(self, job: SeriesJob) -> Step:
        temporary = task.temporary_name(job.archives[0][0], self.label, next(self.numbers))
        self.ledger.begin_series(job, temporary)
        step = self._step(job.series, task.perform_series, job, temporary)
        return replace(step, memory=job.projected_bytes)

    def _nest(self, item: Nesting) -> Step | list[Source] | None:
        """Members whose bundle is missing; the closing step where none is."""
        nested = _Nested(series=item.series, staging=_staging(item.series), reason=item.reason)
        self._stage(nested)
        missing = []
        for number, source in enumerate(item.series.members):
            if source.relpath not in nested.hashes:
                self.bundles[source.relpath] = nested, number
                missing.append(source)
        nested.out = len(missing)
        return missing or self._closed(nested)

    def _stage(self, nested: _Nested) -> None:
        """Find the bundles that stand; what else is in their places is in the way."""
        enrolled = self.ledger.series_of(nested.series.stem)
        if enrolled.staging not in (None, nested.staging):
            publish.sweep(self.roots, [str(enrolled.staging)])
        self.ledger.stage(nested.series.stem, nested.staging)
        known = {member.source.relpath: member for member in enrolled.members}
        for number, source in enumerate(nested.series.members):
            bundle, member = _bundle(nested.staging, number), known[source.relpath]
            stands = publish.stands(self.roots, bundle, member.nbytes)
            if member.bundle == bundle and stands:
                nested.hashes[source.relpath] = member.sha256
            else:
                publish.sweep(self.roots, [bundle])

    def _settled(self, result: SeriesOutcome) -> None:
        self.record(result)
        if result.outcome.state == "archived":
            staging = _staging(result.series)
            publish.sweep(self.roots, [staging])  # where the archive stood already
            self.ledger.stage(result.series.stem, None)

    def _young(self, found: Series) -> Outcome | None:
        """A series of which a member may still be written is left alone, all of it."""
        for source in found.members:
            if is_young(source, self.settle_s):
                message = f"{found.stem}: {source.relpath} is younger than `settle`"
                return Outcome(source=found.members[0], state="changing", message=message)
        return None


def _series(enrolled: Enrolled) -> Series:
    """The members in the order of their grid."""
    arranged = series.arrange(enrolled.axes, Many(each.values for each in enrolled.members))
    return Series(
        stem=enrolled.stem,
        layout=enrolled.layout,
        members=Many(enrolled.members[i].source for i in arranged.order),
        own=tuple(zip(enrolled.axes, arranged.lengths, strict=True)),
        labels=arranged.labels,
        problem=arranged.problem,
        found=enrolled.found,
    )


def _refusal(enrolled: Enrolled, found: Series) -> Outcome | None:
    """Two series that would have one archive are told apart by nothing in its name."""
    one = enrolled.members[0]
    other = next((each for each in enrolled.members if each.identity != one.identity), None)
    if other is None:
        return None
    return Outcome(
        source=found.members[0],
        state="failed",
        failure="permanent",
        message=f"{found.stem}: {one.source.relpath} and {other.source.relpath} are of"
        " different series and would have one archive; name all identity groups in `archive`",
    )


def _staging(found: Series) -> str:
    """Folder below the destination for the bundles of just these members in this order."""
    names = "\0".join(source.relpath for source in found.members)
    digest = hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folder = found.stem.rpartition("/")[0]
    name = f".decant-series-{digest}.staged"
    return f"{folder}/{name}" if folder else name


def _bundle(staging: str, number: int) -> str:
    return f"{staging}/{bundle_name(number)}"


def _held_back(nested: _Nested) -> Outcome:
    """Outcome of a series of which a member has no bundle: the others stay where they are."""
    assert nested.trouble is not None
    first, stem = nested.series.members[0], nested.series.stem
    if nested.trouble.state == "changing":
        message = f"{stem}: {nested.trouble.source.relpath} is changing"
        return Outcome(source=first, state="changing", message=message)
    return Outcome(
        source=first,
        state="failed",
        failure=nested.trouble.failure,
        message=f"{stem}: is not whole without {nested.trouble.source.relpath}:"
        f" {nested.trouble.message}",
    )
