"""Values that cross borders inside ``batch``: small, frozen, picklable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from decant_batch.archive.model import Grid, Mode, Parts, Reason, Recipe

# Where a source stands after a run has met it: each is in exactly one state.
State = Literal[
    "archived",  # a verified archive holds it
    "reported",  # not a TIFF, and the config says to report those only
    "changing",  # too young, or it moved while it was read: next run
    "failed",  # see the failure's class and message
]
# What a failure is, and so what is done about it.
FailureClass = Literal[
    "transient",  # EIO, ESTALE, a lost worker: tried again in the same run, then next run
    "poison",  # its worker died more than once: parked
    "permanent",  # trying again cannot help until someone acts
    "destination",  # the destination is full or read-only: the run stops
]

# How members of a series are kept: in one shared array, each on its own, or as it can be had.
SeriesLayout = Literal["auto", "consolidated", "nested"]
# How it is known that sources are one series.
Found = Literal[
    "declared",  # a rule in the config says so
    "guessed",  # their names look like it, and the config asks for guesses
    "told",  # the files themselves say so
]

# Why a run that was interrupted stopped.
INTERRUPTED = "interrupted"
# Why the walk left something out.
Why = Literal[
    "hidden",  # its name begins with "."
    "litter",  # what systems leave behind, see ``discover.LITTER``
    "excluded",  # `exclude` matches it
    "not-included",  # no pattern of `include` matches it, or anything that could be in it
    "symlink",  # never followed; what it points to is a source where it lies itself
    "special",  # a socket, pipe or device
    "own-folder",  # the destination, or the ledger's folder
    "loop",  # a folder that holds itself, by a bind mount
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The folders of a run, absolute, as driver and workers see them."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file on the share, as the walk saw it; nothing of it was opened.

    ``relpath`` is relative to the source root with ``/`` between parts; bytes that are not UTF-8
    are surrogate-escaped. ``mode`` holds the permission bits.
    """

    relpath: str
    size: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The series that a source belongs to, and where on its axes it stands.

    ``stem`` is the path of the series' archive below the destination, without suffix. Sources of
    one stem and another ``identity`` are of different series that would have one archive.
    """

    stem: str
    axes: tuple[str, ...]
    layout: SeriesLayout
    values: tuple[str, ...]
    identity: tuple[str, ...] = ()
    found: Found = "declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """Members in the order of their grid: ``order[k]`` is the k-th, ``lengths`` are the axes'.

    ``problem`` says why they do not fill the grid; ``labels`` name the channels, if anything does.
    """

    order: tuple[int, ...]
    lengths: tuple[int, ...]
    labels: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Members of one series, in the order of its archive.

    ``own`` are the axes by which they were found, slowest first, with the lengths that
    ``arranged`` gave them; ``problem`` says why the series cannot be consolidated.
    """

    stem: str
    layout: SeriesLayout
    members: Sequence[Source]
    own: Parts = ()
    labels: tuple[str, ...] = ()
    problem: str = ""
    found: Found = "declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledMember:
    """One member as the ledger has it; ``bundle`` is its archive in a nested series not yet whole.

    The bundle is of the member as it is now: of its size and time.
    """

    source: Source
    values: tuple[str, ...]
    identity: str
    bundle: str | None
    sha256: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """One series as the ledger has it; ``staging`` is where its bundles are gathered, if so."""

    stem: str
    axes: tuple[str, ...]
    layout: SeriesLayout
    found: Found
    staging: str | None
    members: Sequence[EnrolledMember]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesOutcome:
    """What became of a series: ``outcome`` is its first member's, and the same of all.

    It has no sha256, as the manifest of a series has none: each member has its own there. Workers
    give the outcome alone: the members are many, and the driver knows them.
    """

    series: Series
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSurvey:
    """What reading only the members' headers told us.

    ``largest`` has the numbers of the member that takes most memory, ``grid`` the planes that all
    fill together; ``problem`` says why they cannot be consolidated. ``moved`` and ``trouble`` as in
    ``Survey``, of the first member that has one.
    """

    grid: Grid | None
    largest: Survey
    problem: str = ""
    moved: str = ""
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesJob:
    """One consolidated archive to make. ``archives`` are the names to try, below the destination.

    Each is a pair: the name, and the one that a nested archive of the same version would have.
    """

    series: Series
    grid: Grid
    archives: tuple[tuple[str, str], ...]
    recipe: Recipe
    projected_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nesting:
    """A series whose members get a bundle each; ``reason`` says why it is not consolidated."""

    series: Series
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """One nested series whose bundles stand in ``staging``: what is left is to give it its name.

    ``hashes`` are the members' sha256, ``archives`` as in ``SeriesJob``; ``reason`` says why the
    series is not consolidated.
    """

    series: Series
    staging: str
    hashes: tuple[str, ...]
    archives: tuple[tuple[str, str], ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A place the walk could not read, or a source that failed: path, class and message."""

    relpath: str
    failure: FailureClass
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A source whose bytes are archived whole, and what its archive does not tell of it."""

    relpath: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A file left out by a rule, or a folder that was not entered and is counted once.

    ``size`` is 0 for folders, symlinks and special files.
    """

    relpath: str
    size: int
    why: Why
    is_folder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What reading only a source's headers told us; numbers from which memory is computed.

    ``is_tiff`` is true for a TIFF by its first bytes or by its name. ``live_nbytes`` is the exact
    maximum of bytes of pages begun and not finished at any offset of the source;
    ``document_nbytes`` is how much text about the pixels it holds. ``moved`` says
    what happened to a source that is not as the walk saw it, ``trouble`` why it cannot be read.
    """

    source: Source
    is_tiff: bool
    mode: Mode
    reason: Reason | None = None
    detail: str = ""
    page_nbytes: int = 0
    page_count: int = 0
    segment_count: int = 0
    live_nbytes: int = 0
    pixels_nbytes: int = 0
    tiled: bool = False
    document_nbytes: int = 0
    moved: str = ""
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One archive to make. ``archive`` is relative to the destination.

    ``further`` are the names to go on to where an earlier one holds other content of this source:
    an archive is never overwritten. ``projected_bytes`` is the whole memory of a worker that does
    this job, reserved included. ``mode`` is what the plan expects; ``reason`` why it is verbatim.
    """

    source: Source
    archive: str
    further: tuple[str, ...] = ()
    mode: Mode
    reason: Reason | None
    detail: str
    recipe: Recipe
    projected_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one source; small, and the only thing that travels back to the driver."""

    source: Source
    state: State
    archive: str | None = None
    mode: Mode | None = None
    reason: Reason | None = None
    detail: str = ""
    sha256: str = ""
    archive_nbytes: int = 0
    adopted: bool = False
    warnings: tuple[str, ...] = ()
    failure: FailureClass | None = None
    message: str = ""
    projected_bytes: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many sources, of how many bytes, in how many bytes of archives."""

    count: int = 0
    source_nbytes: int = 0
    archive_nbytes: int = 0

    def plus(self, source_nbytes: int, archive_nbytes: int = 0) -> Tally:
        """The tally with one more source in it."""
        return Tally(
            count=self.count + 1,
            source_nbytes=self.source_nbytes + source_nbytes,
            archive_nbytes=self.archive_nbytes + archive_nbytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Where a run stands now. Until ``walk_ended`` what was found is not the whole.

    ``settled_*`` were archived or reported by earlier runs and are unchanged; ``done_*`` were
    finished by this run, whatever their state; ``underway_nbytes`` are the bytes already read of
    sources not finished. ``running`` names some sources that workers have now.
    """

    found_count: int = 0
    found_nbytes: int = 0
    walk_ended: bool = False
    settled_count: int = 0
    settled_nbytes: int = 0
    done_count: int = 0
    done_nbytes: int = 0
    failed_count: int = 0
    underway_nbytes: int = 0
    running: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run did, as the ledger has it: every source the walk found is in ``states`` once.

    Only a run that was ``stopped`` leaves sources that it met and did not finish: ``waiting``.
    ``settled`` counts those of ``states`` that an earlier run had finished and this run did not
    open, ``adopted`` those whose archive stood already and was proved. ``left_out`` is what the
    walk passed over, by the reason: files with their bytes, and folders that were not entered.
    ``troubles`` are folders that could not be read and sources that failed, the first of many.
    ``warnings`` are the first of what archives made by this run do not tell of their sources'
    metadata, ``warning_count`` how many sources they are about.
    ``stopped`` says why the run ended before its end, if it did.
    """

    run: int
    states: dict[State, Tally]
    waiting: Tally
    modes: dict[Mode, Tally]
    reasons: dict[str, int]
    settled: Tally
    troubles: tuple[Trouble, ...]
    trouble_count: int
    seconds: float
    ledger: str
    report: str | None
    adopted: Tally = Tally()
    left_out: Mapping[Why, Tally] = field(default_factory=dict)
    warnings: tuple[Warned, ...] = ()
    warning_count: int = 0
    stopped: str | None = None
