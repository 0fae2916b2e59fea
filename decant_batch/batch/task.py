"""What runs on a worker: survey sources, make archives. Knows no dask and no ledger.

A source's failure is data here: what the system, the source or the archive say becomes the class
and the message of an Outcome. What else goes wrong is a fault of ours and passes through.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import tifffile

from decant_batch.archive import layout as layouts
from decant_batch.archive import pack, verify
from decant_batch.archive.model import Layout, Refusal, Report
from decant_batch.batch import memory
from decant_batch.batch.assemble import close, make_series
from decant_batch.batch.gathering import Gathering
from decant_batch.batch.model import (
    Closing,
    FailureClass,
    Job,
    Outcome,
    Roots,
    Series,
    SeriesJob,
    SeriesSurvey,
    Source,
    Survey,
    Trouble,
)
from decant_batch.batch.publish import check_still, make
from decant_batch.errors import DecantError, SourceChanged

_TIFF_SUFFIXES = (".tif", ".tiff", ".btf", ".tf2", ".tf8", ".lsm", ".stk", ".svs", ".ndpi", ".scn")
# By name: not every system has them all.
_TRANSIENT = frozenset(
    {"EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EINTR", "EBUSY", "EREMOTEIO"}
    | {"ENOTCONN", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH"}
)
_DESTINATION = frozenset({"ENOSPC", "EDQUOT", "EROFS"})


# --- survey -----------------------------------------------------------------------------------


def survey(roots: Roots, sources: Sequence[Source], _report: Report) -> list[Survey]:
    """Survey of each source, from its headers alone; what cannot be read has its trouble told."""
    return [_survey(Path(roots.source, source.relpath), source) for source in sources]


def survey_series(roots: Roots, series: Series, _report: Report) -> SeriesSurvey:
    """Survey of a series, member after member: the grid of all, or why there is none."""
    gathering = Gathering(series)
    for source in series.members:
        path = Path(roots.source, source.relpath)
        found = _looked_at(path, source)
        if isinstance(found, Survey):
            gathering.add(found, None)
        else:
            gathering.add(_told(source, found), found)
        if gathering.is_over:
            break
    return gathering.survey()


def _survey(path: Path, source: Source) -> Survey:
    found = _looked_at(path, source)
    return found if isinstance(found, Survey) else _told(source, found)


def _looked_at(path: Path, source: Source) -> Layout | Refusal | Survey:
    """What the headers say; a Survey of what cannot be read."""
    try:
        check_still(path, source)
        return layouts.survey(path)
    except SourceChanged as error:
        return _unread(source, moved=str(error))
    except (FileNotFoundError, NotADirectoryError):
        return _unread(source, moved=_vanished(path))
    except OSError as error:
        return _unread(source, trouble=_trouble(source, path, error, None))


def _told(source: Source, found: Layout | Refusal) -> Survey:
    if isinstance(found, Refusal):
        return Survey(
            source=source,
            is_tiff=found.reason not in ("not-a-tiff", "empty-file") or _is_named_tiff(source),
            mode="verbatim",
            reason=found.reason,
            detail=found.detail,
        )
    return Survey(
        source=source,
        is_tiff=True,
        mode="byte-exact",
        page_nbytes=found.geometry.page_nbytes,
        page_count=found.page_count,
        segment_count=len(found.offsets),
        live_nbytes=memory.live_nbytes(found),
        pixels_nbytes=found.pixels_nbytes,
        tiled=bool(found.geometry.tile_width),
        document_nbytes=found.document_nbytes,
    )


def _unread(source: Source, *, moved: str = "", trouble: Trouble | None = None) -> Survey:
    return Survey(
        source=source,
        is_tiff=_is_named_tiff(source),
        mode="verbatim",
        moved=moved,
        trouble=trouble,
    )


def _vanished(path: Path) -> str:
    return f"{path}: vanished since the walk"


def _is_named_tiff(source: Source) -> bool:
    return source.relpath.lower().endswith(_TIFF_SUFFIXES)


def _trouble(source: Source, path: Path, error: OSError, destination: str | None) -> Trouble:
    """Class and message of what the system said about a source or its archive."""
    failure: FailureClass = "permanent"
    name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(path)
    of_destination = (
        destination is not None and name != str(path) and Path(name).is_relative_to(destination)
    )
    next_step = "check its permissions"
    code = errno.errorcode.get(error.errno or 0, "")
    if code in _DESTINATION:
        failure, next_step = "destination", "make room at the destination, then run again"
        name = destination or name
    elif code in _TRANSIENT:
        failure, next_step = "transient", "it is tried again"
    elif of_destination and code in ("EACCES", "EPERM"):
        failure, next_step = "destination", "make the destination writable, then run again"
    elif code == "ENAMETOOLONG":
        name, next_step = str(path), "shorten its name"
    message = f"{name}: {error.strerror or error}; {next_step}"
    return Trouble(relpath=source.relpath, failure=failure, message=message)


# --- perform ----------------------------------------------------------------------------------


def perform(
    roots: Roots, jobs: Sequence[Job], temporaries: Sequence[str], report: Report
) -> list[Outcome]:
    """Outcome of each job, done one after the other; a source's failure is data, not an exception.

    ``temporaries`` are the temporary names, relative to the destination; ``report`` is called with
    the number of source bytes read.
    """
    _give_back()
    return [
        _measured(
            roots, job.source, job.projected_bytes, partial(make, roots, job, temporary, report)
        )
        for job, temporary in zip(jobs, temporaries, strict=True)
    ]


def perform_series(roots: Roots, job: SeriesJob, temporary: str, report: Report) -> Outcome:
    """Outcome of a consolidated series; ``temporary`` and ``report`` as in ``perform``."""
    _give_back()
    first = job.series.members[0]
    return _measured(
        roots, first, job.projected_bytes, lambda: make_series(roots, job, temporary, report)
    )


def close_series(roots: Roots, closing: Closing, report: Report) -> Outcome:
    """Outcome of a nested series whose bundles are all made."""
    first = closing.series.members[0]
    return _guarded(roots, first, lambda: close(roots, closing, report))


def temporary_name(archive: str, label: str, number: int) -> str:
    """Temporary name for an archive: hidden, short whatever the archive's name, in its folder.

    ``label`` is the run's own, ``number`` is used once in it.
    """
    folder = archive.rpartition("/")[0]
    name = f".decant-{label}-{number}.partial"
    return f"{folder}/{name}" if folder else name


def _measured(
    roots: Roots, source: Source, projected_bytes: int, do: Callable[[], Outcome]
) -> Outcome:
    began, measured = time.monotonic(), _forget_peak()
    outcome = _guarded(roots, source, do)
    return replace(
        outcome,
        projected_bytes=projected_bytes,
        peak_bytes=_peak_bytes() if measured else 0,
        seconds=time.monotonic() - began,
        worker=f"{socket.gethostname()}:{os.getpid()}",
    )


def _give_back() -> None:
    """Hand back to the system what earlier work left free, so that peaks do not add up (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _forget_peak() -> bool:
    """Set the process' peak back to what it has now; False where the system cannot (not Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM
    except OSError:
        return False
    return True


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return memory.peak_bytes(dict(line.split(":", 1) for line in lines))


def resident_bytes() -> int:
    """Bytes of memory that this process has now."""
    return int(psutil.Process().memory_info().rss)


def reserved_bytes() -> int:
    """Bytes that this process takes when it is idle and has done everything once.

    A small archive is made and proved in a temporary folder first: what is imported, compiled or
    opened on the way stays.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "x.tif")
        tifffile.imwrite(
            source, np.zeros((2, 256, 256), np.uint16), photometric="minisblack", ome=True
        )
        pack(source, Path(folder, "x.zarr.zip"))
        verify(Path(folder, "x.zarr.zip"))
    _give_back()
    return resident_bytes()


def _guarded(roots: Roots, source: Source, do: Callable[[], Outcome]) -> Outcome:
    """Outcome of what is done for a source, whatever the system or the archive say."""
    path = Path(roots.source, source.relpath)
    try:
        return do()
    except SourceChanged as error:
        return Outcome(source=source, state="changing", message=str(error))
    except DecantError as error:
        return _failed(source, "permanent", str(error))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not path.exists():
            return Outcome(source=source, state="changing", message=_vanished(path))
        if isinstance(error, NotADirectoryError):
            return _failed(source, "permanent", f"{error.filename}: a file stands in its way")
        return _failed(
            source, "transient", f"{error.filename}: {error.strerror}; it is tried again"
        )
    except OSError as error:
        trouble = _trouble(source, path, error, roots.destination)
        return _failed(source, trouble.failure, trouble.message)
    except MemoryError:
        return _failed(source, "permanent", f"{path}: out of memory; raise `memory` in the config")


def _failed(source: Source, failure: FailureClass, message: str) -> Outcome:
    return Outcome(source=source, state="failed", failure=failure, message=message)
