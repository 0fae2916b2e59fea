"""One archive made, proved and published: the one place that gives an archive its name.

It is packed under a temporary name in the folder of its final one, verified there from the disk,
and only then renamed: a published name is a verified archive. What stands at the name already is
proved and adopted, or left alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from decant_batch.archive import layout as layouts
from decant_batch.archive import manifest
from decant_batch.archive.container import open_container, sync_folder
from decant_batch.archive.model import Layout, Mode, Packed, Reason, Refusal, Report, Stamp
from decant_batch.archive.pack import pack
from decant_batch.archive.rebuild import originals
from decant_batch.archive.verify import verify
from decant_batch.batch.model import Job, Outcome, Roots, Source
from decant_batch.errors import ArchiveDamaged, NameTaken, SourceChanged

_MOVE = "move one of them away, then run again"
DAMAGED = "this archive is damaged; move it away, then run again: it is made anew"
_TAKEN = (
    "something else, or a damaged archive, stands at the archive's name; move it away, then run"
    " again"
)


def make(roots: Roots, job: Job, temporary: str, report: Report) -> Outcome:
    """The published archive of one source: made, or found standing and proved.

    Raises
    ------
    SourceChanged
        Where the source is not as the walk saw it; nothing is published.
    NameTaken
        Where something else stands at the archive's name.
    ArchiveDamaged
        Where not even a verbatim archive gives the source back; nothing is published.
    OSError
        Where source or destination cannot be read or written; nothing is left behind.
    """
    path = Path(roots.source, job.source.relpath)
    check_still(path, job.source)
    sha256 = ""
    for archive, found in places(roots, job):
        if found is None:
            return _made(roots, job, path, archive, temporary, report)
        sha256 = sha256 or sha256_of(path)
        check_still(path, job.source)
        if found.sha256 == sha256:
            return _adopted(job, archive, Path(roots.destination, archive), found)
    raise AssertionError("places ends with a free name or an error")


def places(roots: Roots, job: Job) -> Iterator[tuple[str, Held | None]]:
    """Where the source's archive may stand: names that hold a source of its path and size, and at
    last the first that is free, with None.

    Raises
    ------
    NameTaken
        Where something else stands at a name or where a folder must go, or no name is left.
    """
    root = Path(roots.destination)
    for archive in (job.archive, *job.further):
        final = root / archive
        refuse_obstacles(final, root)
        if not os.path.lexists(final):
            yield archive, None
            return
        found = held(final)
        if found.size == job.source.size and found.relpath in (None, job.source.relpath):
            yield archive, found
    raise NameTaken(
        f"{Path(roots.source, job.source.relpath)}: {job.archive} and those after it hold other"
        " versions of it, no name is left for a further one; move old versions away, or shorten the"
        " source's name"
    )


def stands(roots: Roots, archive: str, nbytes: int) -> bool:
    """True where an archive of this size is at its name, by one look and without opening it.

    Of a folder only its manifest is looked for. Other content of the same size is for ``verify``.
    """
    path = Path(roots.destination, archive)
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            return (path / manifest.KEY).exists()
    except OSError:  # whatever it is, it will be met again, and told, where the archive is made
        return False
    return found.st_size == nbytes


def _made(
    roots: Roots, job: Job, path: Path, archive: str, temporary: str, report: Report
) -> Outcome:
    root, final, partial = (Path(roots.destination, name) for name in ("", archive, temporary))
    make_folders(final.parent, root)
    try:
        packed = _proved(path, partial, job, report)
        check_still(path, job.source)
        publish(partial, final)
    finally:
        remove(partial)
    return Outcome(
        source=job.source,
        state="archived",
        archive=archive,
        mode=packed.mode,
        reason=packed.reason,
        detail=packed.detail,
        sha256=packed.sha256,
        archive_nbytes=packed.archive_nbytes,
        warnings=packed.warnings,
    )


def check_still(path: Path, source: Source) -> None:
    """Raise SourceChanged where the source is not as the walk saw it."""
    now = path.stat()
    if not stat.S_ISREG(now.st_mode):
        raise SourceChanged(f"{path}: is no longer a file")
    if (now.st_size, now.st_mtime_ns) != (source.size, source.mtime_ns):
        raise SourceChanged(f"{path}: changed since the walk; it is tried again next run")


def _proved(path: Path, partial: Path, job: Job, report: Report) -> Packed:
    """Pack at the temporary name and prove it; verbatim where byte-exact does not rebuild."""
    planned = job.mode == "byte-exact" or job.reason != "over-memory"
    found = layouts.survey(path) if planned else _refusal("over-memory", job.detail)
    packed, problem = _packed(path, partial, job, found, report)
    if problem is not None and packed.mode == "byte-exact":
        found = _refusal("rebuild-differs", problem)
        packed, problem = _packed(path, partial, job, found, report)
    if problem is not None:
        raise ArchiveDamaged(
            f"{path}: the archive does not give it back ({problem}); nothing published"
        )
    return packed


def _refusal(reason: Reason, detail: str) -> Refusal:
    return Refusal(reason=reason, detail=detail)


def _packed(
    path: Path, partial: Path, job: Job, found: Layout | Refusal, report: Report
) -> tuple[Packed, str | None]:
    """What was packed at ``partial``, and what is wrong with it; wiped first if something stood."""
    remove(partial)
    source = job.source
    stamp = Stamp(relpath=source.relpath, mtime_ns=source.mtime_ns, mode=source.mode)
    packed = pack(path, partial, recipe=job.recipe, stamp=stamp, found=found, report=report)
    return packed, _problem(partial, job.recipe.threads, packed.sha256)


def _problem(archive: Path, threads: int, sha256: str) -> str | None:
    """Why an archive on the disk does not give back the source that was read; None if it does."""
    try:
        proved = verify(archive, threads=threads)
    except ArchiveDamaged as error:
        return str(error)
    if [each.sha256 for each in proved] != [sha256]:
        return "it holds another file"
    return proved[0].problem


def refuse_obstacles(final: Path, root: Path) -> None:
    """An archive has no place below a file, or below a folder that is another source's archive."""
    for folder in final.parents:
        if folder == root:
            return
        if (folder / manifest.KEY).exists():
            raise NameTaken(f"{final}: would lie inside the archive {folder}; {_MOVE}")
        if os.path.lexists(folder) and not folder.is_dir():
            raise NameTaken(f"{folder}: no folder, and {final.name} must go into it; {_MOVE}")


def make_folders(folder: Path, root: Path) -> None:
    """Make a folder below the destination, its name on stable storage like those above it."""
    missing = []
    while folder != root and not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)


def publish(partial: Path, final: Path) -> None:
    """Give an archive its name, never over something else, on stable storage."""
    try:
        if partial.is_dir():
            _rename_folder(partial, final)
        else:
            _link(partial, final)
    except FileExistsError as error:
        raise NameTaken(f"{final}: {_TAKEN}") from error
    sync_folder(final.parent)


def _rename_folder(partial: Path, final: Path) -> None:
    # rename(2) replaces an empty folder and nothing else.
    if os.path.lexists(final):
        raise FileExistsError
    partial.rename(final)


def _link(partial: Path, final: Path) -> None:
    """Rename that cannot replace: link(2) fails where the name is taken."""
    try:
        final.hardlink_to(partial)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(final):
            raise FileExistsError from None
        partial.rename(final)
        return
    partial.unlink()


def remove(partial: Path) -> None:
    """Remove a temporary archive, zip or folder, if it stands there."""
    if partial.is_dir() and not partial.is_symlink():
        shutil.rmtree(partial)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            partial.unlink()


def sweep(roots: Roots, temporaries: Sequence[str]) -> list[str]:
    """Remove what attempts left at their temporary names; those at which nothing stands any more.

    What cannot be removed now waits for another time: it is no reason for a run to end.
    """
    gone = []
    for temporary in temporaries:
        with contextlib.suppress(OSError):
            remove(Path(roots.destination, temporary))
            gone.append(temporary)
    return gone


# --- adoption ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What an archive says of its one source; ``relpath`` is None where it records none."""

    relpath: str | None
    size: int
    mode: Mode
    sha256: str
    archive_nbytes: int


def held(final: Path) -> Held:
    """What the archive at ``final`` says it holds.

    Raises
    ------
    NameTaken
        Where it is no archive of one source.
    """
    try:
        if stat.S_IFMT(final.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise NameTaken(f"{final}: {_TAKEN}")
        with open_container(final) as container:
            (original,) = originals(container)
            return Held(
                relpath=original.stamp.relpath,
                size=original.size,
                mode=original.manifest.mode,
                sha256=original.sha256,
                archive_nbytes=container.nbytes(),
            )
    except FileNotFoundError as error:  # a link to nowhere
        raise NameTaken(f"{final}: {_TAKEN} ({error.strerror})") from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NameTaken(f"{final}: {_TAKEN} ({error.strerror})") from error
    except (ArchiveDamaged, ValueError) as error:
        why = str(error).removeprefix(f"{final}: ")
        raise NameTaken(f"{final}: {_TAKEN} ({why})") from error


def _adopted(job: Job, archive: str, final: Path, found: Held) -> Outcome:
    """Outcome for an archive that stands at the name and holds just this content.

    It is proved first: that the ledger does not know it is no reason to pack it again, nor to
    believe it. Where only the source's date changed since, the archive keeps the earlier one.
    """
    problem = _problem(final, job.recipe.threads, found.sha256)
    if problem is not None:
        raise NameTaken(f"{final}: {DAMAGED} ({problem})")
    return Outcome(
        source=job.source,
        state="archived",
        archive=archive,
        mode=found.mode,
        reason=job.reason if found.mode == "verbatim" else None,
        sha256=found.sha256,
        archive_nbytes=found.archive_nbytes,
        adopted=True,
    )


def sha256_of(path: Path) -> str:
    """Sha256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
