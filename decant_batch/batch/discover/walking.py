"""The one way through a share: depth first, streaming, stable."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from decant_batch.batch.discover.folders import Identity, identity, names, open_below, open_root
from decant_batch.batch.discover.rules import (
    Rules,
    is_included,
    left_out,
    make_rules,
)
from decant_batch.batch.model import Excluded, Source, Trouble, Why
from decant_batch.errors import UsageError

# The storage, not the file: trying again may help.
_TRANSIENT = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH}
    | {errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.EAGAIN, errno.EBUSY}
    | {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.ENOTDIR}
)


_Found = Source | Trouble | Excluded


@dataclass(slots=True, kw_only=True)
class _Folder:
    """A folder to be entered; ``included`` says that all in it is, by a pattern for a folder."""

    relpath: str  # "" for the root
    parent: _Folder | None = None
    included: bool = False
    identity: Identity | None = None  # known once it is open


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """The folders to skip: by path while they do not exist yet, by identity however reached."""

    relpaths: frozenset[str]
    identities: frozenset[Identity]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """What stays the same on the whole way."""

    root: Path
    rules: Rules
    own: _Own


def walk(
    root: Path,
    *,
    skip: Sequence[Path] = (),
    include: Sequence[str] = ("**",),
    exclude: Sequence[str] = (),
    hidden: bool = False,
    litter: bool = False,
) -> Iterator[Source | Trouble | Excluded]:
    """Sources, troubles and what is left out under ``root``, streaming and in a stable order.

    In each folder files come before folders, both sorted by the bytes of their names. Memory is
    that of one folder's names and of the folders still to be entered beside it and above. What
    vanishes while the walk is on its way is passed over.

    Parameters
    ----------
    root
        The folder to walk; it may be reached through a symlink, but none is followed below it.
    skip
        Folders that are never entered, by path and by identity; they need not exist.
    include, exclude
        Globs on the relpath, see ``globs``; ``exclude`` wins. An excluded folder is not entered,
        and neither is one in which nothing can be included.
    hidden, litter
        Whether names that begin with ``.``, and those of ``LITTER``, are taken too; if not, no
        ``include`` brings them back.

    Raises
    ------
    UsageError
        At once, where ``root`` is missing, no folder, unreadable, or itself in ``skip``.
    """
    top = open_root(root)
    try:
        own = _own_folders(root, identity(os.fstat(top)), skip)
    finally:
        os.close(top)
    rules = make_rules(include, exclude, hidden=hidden, litter=litter)
    return _items(_Walk(root=root, rules=rules, own=own))


def _own_folders(root: Path, root_identity: Identity, skip: Sequence[Path]) -> _Own:
    here = Path(os.path.realpath(root))
    there = [Path(os.path.realpath(path)) for path in skip]
    inside = [path.relative_to(here).as_posix() for path in there if path.is_relative_to(here)]
    identities = set[Identity]()
    for path in there:
        try:
            identities.add(identity(path.stat()))
        except OSError:
            continue  # not made yet: its path alone tells it
    if "." in inside or root_identity in identities:
        raise UsageError(
            f"{root}: is itself the destination or the ledger's folder, which are never walked; "
            "correct `source:`, `destination:` or `ledger:`"
        )
    return _Own(relpaths=frozenset(inside), identities=frozenset(identities))


def _items(walk: _Walk) -> Iterator[_Found]:
    """What ``walk`` yields. At most three descriptors are open at a time, at any depth."""
    top = open_root(walk.root)
    try:
        pending = [_Folder(relpath="")]
        while pending:
            below: list[_Folder] = []
            for item in _opened(walk, top, pending.pop()):
                if isinstance(item, _Folder):
                    below.append(item)
                else:
                    yield item
            pending.extend(reversed(below))
    finally:
        os.close(top)


def _opened(walk: _Walk, top: int, folder: _Folder) -> Iterator[_Found | _Folder]:
    """What is directly in one folder; the folders to be entered are among it."""
    try:
        descriptor = open_below(top, folder.relpath)
    except FileNotFoundError:
        return  # gone since it was listed
    except OSError as error:
        yield _trouble(walk, folder.relpath, error)
        return
    try:
        folder.identity = identity(os.fstat(descriptor))
        if why := _not_walked(walk, folder):
            yield Excluded(relpath=folder.relpath, size=0, why=why, is_folder=True)
        else:
            yield from _listed(walk, descriptor, folder)
    finally:
        os.close(descriptor)


def _not_walked(walk: _Walk, folder: _Folder) -> Why | None:
    if folder.identity in walk.own.identities:
        return "own-folder"
    above = folder.parent
    # A file system that numbers no folders gives all of them 0: that makes no loop.
    while above is not None and folder.identity is not None and folder.identity[1] != 0:
        if above.identity == folder.identity:
            return "loop"
        above = above.parent
    return None


def _listed(walk: _Walk, descriptor: int, folder: _Folder) -> Iterator[_Found | _Folder]:
    files, folders, failure = names(descriptor)
    for name in files:
        item = _entry(walk, descriptor, name, folder)
        if item is not None:
            yield item
    if failure is not None:  # what was listed until then is walked all the same
        yield _trouble(walk, folder.relpath, failure)
    for name in folders:
        yield _subfolder(walk, _relpath(folder, name), folder)


def _entry(walk: _Walk, descriptor: int, name: str, folder: _Folder) -> _Found | _Folder | None:
    """What stands at a name that the listing did not call a folder; None where it is gone."""
    relpath = _relpath(folder, name)
    try:
        found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = left_out(walk.rules, relpath, is_folder=False, included=folder.included)
        if why is not None:
            return Excluded(relpath=relpath, size=0, why=why)
        return _trouble(walk, relpath, error)
    if stat.S_ISDIR(found.st_mode):
        return _subfolder(walk, relpath, folder)
    return _file(walk, relpath, found, folder)


def _file(walk: _Walk, relpath: str, found: os.stat_result, folder: _Folder) -> Source | Excluded:
    if stat.S_ISLNK(found.st_mode):
        return Excluded(relpath=relpath, size=0, why="symlink")
    if not stat.S_ISREG(found.st_mode):
        return Excluded(relpath=relpath, size=0, why="special")
    why = left_out(walk.rules, relpath, is_folder=False, included=folder.included)
    if why is not None:
        return Excluded(relpath=relpath, size=found.st_size, why=why)
    return Source(
        relpath=relpath,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        mode=stat.S_IMODE(found.st_mode),
    )


def _subfolder(walk: _Walk, relpath: str, folder: _Folder) -> Excluded | _Folder:
    why: Why | None = "own-folder" if relpath in walk.own.relpaths else None
    why = why or left_out(walk.rules, relpath, is_folder=True, included=folder.included)
    if why is not None:
        return Excluded(relpath=relpath, size=0, why=why, is_folder=True)
    included = folder.included or is_included(walk.rules, relpath, is_folder=True)
    return _Folder(relpath=relpath, parent=folder, included=included)


def _relpath(folder: _Folder, name: str) -> str:
    return f"{folder.relpath}/{name}" if folder.relpath else name


def _trouble(walk: _Walk, relpath: str, error: OSError) -> Trouble:
    transient = error.errno in _TRANSIENT
    if transient:
        next_step = "the next run tries it again; if it stays so, look at the storage"
    elif isinstance(error, PermissionError):
        next_step = "let this user read it (a folder needs r and x), or exclude it"
    else:
        next_step = "repair or rename it, or exclude it"
    return Trouble(
        relpath=relpath or ".",
        failure="transient" if transient else "permanent",
        message=f"{walk.root / relpath}: cannot be read: {error.strerror}; {next_step}",
    )
