"""What is to be made of each source: mode, name, memory, or a refusal. Pure: no file is touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from decant_batch.archive.model import Recipe
from decant_batch.batch import memory
from decant_batch.batch.model import Job, Outcome, Survey

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
    if survey.moved:
        return Outcome(source=source, state="changing", message=survey.moved)
    if survey.trouble is not None:
        return Outcome(
            source=source,
            state="failed",
            failure=survey.trouble.failure,
            message=survey.trouble.message,
        )
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


def _fits(archive: str) -> bool:
    return len(PurePosixPath(archive).name.encode("utf-8", "surrogateescape")) <= MAX_NAME_NBYTES


def archive_name(relpath: str, recipe: Recipe, version: int) -> str:
    """Path of an archive below the destination: the source's own, and a suffix."""
    further = "" if version == 1 else f".v{version}"
    return f"{relpath}{further}{_SUFFIXES[recipe.container]}"


def _with_memory(
    survey: Survey, archive: str, further: tuple[str, ...], terms: Terms
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
                recipe=replace(terms.recipe, threads=threads),
                projected_bytes=projected,
            )
    return _refused(
        survey,
        f"{survey.source.relpath}: needs {projected} bytes of memory, a worker may take"
        f" {terms.allowed}; raise `memory` under `cluster` in the config",
    )


def _refused(survey: Survey, message: str) -> Outcome:
    return Outcome(source=survey.source, state="failed", failure="permanent", message=message)
