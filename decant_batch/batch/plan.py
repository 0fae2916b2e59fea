"""What is to be made of each source: mode, name, memory, or a refusal. Pure: no file is touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from decant_batch.archive.model import ContainerKind, Recipe
from decant_batch.batch import memory
from decant_batch.batch.model import (
    Job,
    Nesting,
    Outcome,
    Series,
    SeriesJob,
    SeriesSurvey,
    Source,
    Survey,
)

MAX_NAME_NBYTES = 255  # of one part of a path, on the file systems of the day
_FURTHER = 10  # names tried where a lost ledger no longer knows how many versions there are
_SUFFIXES = {"zip": ".zarr.zip", "folder": ".zarr"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a plan depends on beside the survey; memory in bytes, of one worker."""

    recipe: Recipe
    others: str
    allowed: int
    reserved: int


def job(survey: Survey, terms: Terms, version: int) -> Job | Outcome:
    """The job for one surveyed source, or the outcome where there is nothing to do or to be had.

    ``version`` is the number of the archive that may hold the source as it is now already.
    """
    source = survey.source
    if (unread := _unread(source, survey)) is not None:
        return unread
    if not survey.is_tiff and terms.others == "report":
        return Outcome(source=source, state="reported", reason=survey.reason, detail=survey.detail)
    archive = archive_name(source.relpath, terms.recipe, version)
    if not _fits(archive):
        return _refused(
            survey,
            f"{source.relpath}: the archive's name would be longer than {MAX_NAME_NBYTES} bytes;"
            " shorten the file's name",
        )
    further = (
        archive_name(source.relpath, terms.recipe, number)
        for number in range(version + 1, version + _FURTHER)
    )
    return _with_memory(survey, archive, tuple(filter(_fits, further)), terms)


def bundle(survey: Survey, archive: str, terms: Terms) -> Job | Outcome:
    """The job for a member of a nested series: an archive of its own, whatever it is.

    ``archive`` is the bundle's path; see ``job``.
    """
    unread = _unread(survey.source, survey)
    return unread or _with_memory(survey, archive, (), terms, container="zip")


def _unread(source: Source, survey: Survey | SeriesSurvey) -> Outcome | None:
    """Outcome of what moved or could not be read while it was surveyed; None if it was read."""
    if survey.moved:
        return Outcome(source=source, state="changing", message=survey.moved)
    if survey.trouble is None:
        return None
    return Outcome(
        source=source,
        state="failed",
        failure=survey.trouble.failure,
        message=survey.trouble.message,
    )


def series(found: Series, survey: SeriesSurvey, terms: Terms) -> SeriesJob | Nesting | Outcome:
    """What is to be made of a series: one job, bundles and why, or why it cannot be had.

    An Outcome is that of the first member, and what becomes of all.
    """
    first = found.members[0]
    if (unread := _unread(first, survey)) is not None:
        return unread
    problem = survey.problem or ("the config says so" if found.layout == "nested" else "")
    pack_as = [] if problem else _consolidated(found, survey, terms)
    for item in pack_as:
        if item.projected_bytes <= terms.allowed:
            return item
    if pack_as:
        problem = f"needs {item.projected_bytes} bytes of memory, a worker may take {terms.allowed}"
    if found.layout == "consolidated":
        return Outcome(
            source=first,
            state="failed",
            failure="permanent",
            message=f"{found.stem}: cannot be consolidated: {problem}; mend that, or write"
            " `layout: auto`",
        )
    return Nesting(series=found, reason=problem)


def _consolidated(found: Series, survey: SeriesSurvey, terms: Terms) -> list[SeriesJob]:
    """The ways in which a series can be one job, that with most threads first."""
    assert survey.grid is not None
    jobs = []
    for threads in (terms.recipe.threads, 1):
        nbytes = memory.series_nbytes(
            survey.largest,
            threads,
            members=len(found.members),
            pyramid=terms.recipe.pyramid is not None,
        )
        jobs.append(
            SeriesJob(
                series=found,
                grid=survey.grid,
                archives=series_names(found.stem, terms.recipe.container),
                recipe=replace(terms.recipe, threads=threads),
                projected_bytes=terms.reserved + nbytes,
            )
        )
    return jobs


def series_names(stem: str, container: ContainerKind) -> tuple[tuple[str, str], ...]:
    """Names to try for a series' archive, each with the one it would have in the other layout.

    A version is one number for both: which is the later one must be seen.
    """
    names = []
    for number in range(1, 1 + _FURTHER):
        both = [archive_name(stem, Recipe(container=kind), number) for kind in ("zip", "folder")]
        names.append((both[0], both[1]) if container == "zip" else (both[1], both[0]))
    return tuple(each for each in names if all(map(_fits, each)))


def _fits(archive: str) -> bool:
    return len(PurePosixPath(archive).name.encode("utf-8", "surrogateescape")) <= MAX_NAME_NBYTES


def archive_name(relpath: str, recipe: Recipe, version: int) -> str:
    """Path of an archive below the destination: the source's own, and a suffix."""
    further = "" if version == 1 else f".v{version}"
    return f"{relpath}{further}{_SUFFIXES[recipe.container]}"


def _with_memory(
    survey: Survey,
    archive: str,
    further: tuple[str, ...],
    terms: Terms,
    container: ContainerKind | None = None,
) -> Job | Outcome:
    """The job where it fits: with all its threads, with one, verbatim; else a refusal."""
    verbatim = replace(
        survey,
        mode="verbatim",
        reason=survey.reason or "over-memory",
        detail=survey.detail or f"{survey.live_nbytes} bytes of pages are live at once",
    )
    ways = [(each, threads) for each in (survey, verbatim) for threads in (terms.recipe.threads, 1)]
    for way, threads in ways:
        nbytes = memory.job_nbytes(way, threads, pyramid=terms.recipe.pyramid is not None)
        projected = terms.reserved + nbytes
        if projected <= terms.allowed:
            return Job(
                source=survey.source,
                archive=archive,
                further=further,
                mode=way.mode,
                reason=way.reason,
                detail=way.detail,
                recipe=replace(
                    terms.recipe, threads=threads, container=container or terms.recipe.container
                ),
                projected_bytes=projected,
            )
    return _refused(
        survey,
        f"{survey.source.relpath}: needs {projected} bytes of memory, a worker may take"
        f" {terms.allowed}; raise `memory` under `cluster` in the config",
    )


def _refused(survey: Survey, message: str) -> Outcome:
    return Outcome(source=survey.source, state="failed", failure="permanent", message=message)
