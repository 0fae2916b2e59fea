"""The walk: every source under the root, in a stable order; nothing is opened but folders.

What is left out, and what cannot be read, is yielded as well: the balance sheet needs all three.

Globs are those of gitignore, without negation:

- ``*`` and ``?`` and ``[abc]`` match within one name, ``**`` across folders, in the case they
  are written in;
- a pattern without ``/`` matches a name anywhere; one with ``/`` the path from the root on, and a
  leading ``/`` only says so;
- ``name/`` matches folders only;
- a pattern that matches a folder holds for everything in it. An excluded folder is not entered,
  and neither is one in which nothing can be included.

``exclude`` wins over ``include``; hidden names and litter are left out before both.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from decant_batch.batch.model import Source, Trouble
from decant_batch.errors import UsageError

Why = Literal[
    "hidden",  # its name begins with "."
    "litter",  # see LITTER
    "excluded",  # `exclude` matches it
    "not-included",  # no pattern of `include` matches it, or anything that could be in it
    "symlink",  # never followed; what it points to is a source where it lies itself
    "special",  # a socket, pipe or device
    "own-folder",  # the destination, or the ledger's folder
    "loop",  # a folder that holds itself, by a bind mount
]
# What systems and servers leave behind, whatever the case: no one's data. The folders among them
# may hold a copy of the whole share (.snapshot, ~snapshot) or what was thrown away.
LITTER = (
    *("Thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "~$*"),
    *("$RECYCLE.BIN/", "System Volume Information/"),
    *(".DS_Store", "._*", ".AppleDouble/", ".Spotlight-V100/", ".Trashes/", ".fseventsd/"),
    *(".TemporaryItems/", ".DocumentRevisions-V100/", ".VolumeIcon.icns"),
    *(".Trash-*/", ".directory", ".nfs*", "lost+found/"),
    *("@eaDir/", "#recycle/", "#snapshot/", ".snapshot/", "~snapshot/", ".zfs/"),
)
# The storage, not the file: trying again may help.
_TRANSIENT = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH}
    | {errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.EAGAIN, errno.EBUSY}
    | {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.ENOTDIR}
)
# Linux takes paths of less than 4096 bytes; deeper folders are opened in several steps.
_STEP_NBYTES = 4000
_Identity = tuple[int, int]  # st_dev, st_ino


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A file left out by a rule, or a folder that was not entered and is counted once.

    ``size`` is 0 for folders, symlinks and special files.
    """

    relpath: str
    size: int
    why: Why
    is_folder: bool = False


@dataclass(slots=True, kw_only=True)
class _Folder:
    relpath: str  # "" for the root
    parent: _Folder | None
    included: bool  # with everything in it, by a pattern that matched it or a folder above
    identity: _Identity | None = None  # not known before it is opened


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
    that of one folder's names and of the folders still to be entered above it.

    Parameters
    ----------
    root
        The folder to walk; it may be reached through a symlink.
    skip
        Folders that are never entered, by path and by identity; they need not exist.
    include, exclude
        Globs, see the module.
    hidden, litter
        Whether names that begin with ``.``, and those of ``LITTER``, are taken as well.

    Raises
    ------
    UsageError
        At once, where ``root`` is missing, no folder, unreadable, or itself in ``skip``.
    """
    _check_root(root)
    own = _own_folders(root, skip)
    rules = _Rules(
        include=glob_regex(include),
        reach=reach_regex(include),
        exclude=glob_regex(exclude),
        litter=None if litter else glob_regex(LITTER, ignore_case=True),
        hidden=hidden,
    )
    return _Walk(root=root, rules=rules, own=own).items()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    include: re.Pattern[str]
    reach: re.Pattern[str]
    exclude: re.Pattern[str]
    litter: re.Pattern[str] | None
    hidden: bool

    def included(self, relpath: str, *, is_folder: bool) -> bool:
        return _matches(self.include, relpath, is_folder)

    def leave_out(self, relpath: str, *, is_folder: bool, included: bool) -> Why | None:
        """Why a file or folder is left out; ``included`` says that its folder is, whole."""
        name = relpath.rpartition("/")[2]
        if self.litter is not None and _matches(self.litter, name, is_folder):
            return "litter"
        if not self.hidden and name.startswith("."):
            return "hidden"
        if _matches(self.exclude, relpath, is_folder):
            return "excluded"
        if included or self.included(relpath, is_folder=is_folder):
            return None
        if is_folder and self.reach.fullmatch(_composed(relpath)):
            return None
        return "not-included"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """The folders to skip: by path while they do not exist yet, by identity however reached."""

    relpaths: frozenset[str]
    identities: frozenset[_Identity]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    root: Path
    rules: _Rules
    own: _Own

    def items(self) -> Iterator[Source | Trouble | Excluded]:
        """What ``walk`` yields. Two descriptors are open at most, at any depth."""
        top = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            pending = [_Folder(relpath="", parent=None, included=False)]
            while pending:
                below: list[_Folder] = []
                for item in self._folder(top, pending.pop()):
                    if isinstance(item, _Folder):
                        below.append(item)
                    else:
                        yield item
                pending.extend(reversed(below))
        finally:
            os.close(top)

    def _folder(
        self, top: int, folder: _Folder
    ) -> Iterator[Source | Trouble | Excluded | _Folder]:
        """What is directly in one folder; folders to be entered come last."""
        try:
            descriptor = _open_below(top, folder.relpath)
        except FileNotFoundError:
            return  # gone since it was listed
        except OSError as error:
            yield self._trouble(folder.relpath, error)
            return
        try:
            folder.identity = _identity(os.fstat(descriptor))
            if why := self._not_walked(folder):
                yield Excluded(relpath=folder.relpath, size=0, why=why, is_folder=True)
            else:
                yield from self._listed(descriptor, folder)
        except OSError as error:
            yield self._trouble(folder.relpath, error)
        finally:
            os.close(descriptor)

    def _not_walked(self, folder: _Folder) -> Why | None:
        if folder.identity in self.own.identities:
            return "own-folder"
        above = folder.parent
        while above is not None:
            # Some network file systems number nothing: 0 says nothing.
            if above.identity == folder.identity and folder.identity and folder.identity[1]:
                return "loop"
            above = above.parent
        return None

    def _listed(
        self, descriptor: int, folder: _Folder
    ) -> Iterator[Source | Trouble | Excluded | _Folder]:
        files, folders, failure = _names(descriptor)
        prefix = f"{folder.relpath}/" if folder.relpath else ""
        for name in files:
            item = self._file(descriptor, name, prefix + name, folder)
            if item is not None:
                yield item
        if failure is not None:  # what was listed until then is walked all the same
            yield self._trouble(folder.relpath, failure)
        for name in folders:
            yield self._subfolder(prefix + name, folder)

    def _file(
        self, descriptor: int, name: str, relpath: str, folder: _Folder
    ) -> Source | Trouble | Excluded | _Folder | None:
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None  # gone since it was listed
        except OSError as error:
            why = self.rules.leave_out(relpath, is_folder=False, included=folder.included)
            return Excluded(relpath=relpath, size=0, why=why) if why else self._trouble(relpath, error)
        if stat.S_ISDIR(found.st_mode):  # the listing did not say so
            return self._subfolder(relpath, folder)
        if not stat.S_ISREG(found.st_mode):
            kind: Why = "symlink" if stat.S_ISLNK(found.st_mode) else "special"
            return Excluded(relpath=relpath, size=0, why=kind)
        why = self.rules.leave_out(relpath, is_folder=False, included=folder.included)
        if why is not None:
            return Excluded(relpath=relpath, size=found.st_size, why=why)
        return Source(
            relpath=relpath,
            size=found.st_size,
            mtime_ns=found.st_mtime_ns,
            mode=stat.S_IMODE(found.st_mode),
        )

    def _subfolder(self, relpath: str, folder: _Folder) -> Excluded | _Folder:
        why: Why | None = "own-folder" if relpath in self.own.relpaths else None
        why = why or self.rules.leave_out(relpath, is_folder=True, included=folder.included)
        if why is not None:
            return Excluded(relpath=relpath, size=0, why=why, is_folder=True)
        included = folder.included or self.rules.included(relpath, is_folder=True)
        return _Folder(relpath=relpath, parent=folder, included=included)

    def _trouble(self, relpath: str, error: OSError) -> Trouble:
        path = self.root / relpath
        if error.errno in _TRANSIENT:
            next_step = "it is tried again in the next run; if it stays so, look at the storage"
        elif isinstance(error, PermissionError):
            next_step = "let this user read it (folders need r and x), or exclude it"
        else:
            next_step = "repair or rename it, or exclude it"
        return Trouble(
            relpath=relpath or ".",
            failure="transient" if error.errno in _TRANSIENT else "permanent",
            message=f"{path}: cannot be read: {error.strerror}; {next_step}",
        )


def _check_root(root: Path) -> None:
    """Nothing, where ``root`` is a folder that can be listed."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                next(entries, None)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise UsageError(f"{root}: no such folder; mount the share, or correct `source:`") from error
    except NotADirectoryError as error:
        raise UsageError(f"{root}: not a folder; write the folder's path as `source:`") from error
    except OSError as error:
        raise UsageError(
            f"{root}: cannot be read: {error.strerror}; let this user read the share, or look at "
            "its mount"
        ) from error


def _own_folders(root: Path, skip: Sequence[Path]) -> _Own:
    here = Path(os.path.realpath(root))
    there = [Path(os.path.realpath(path)) for path in skip]
    inside = [path.relative_to(here).as_posix() for path in there if path.is_relative_to(here)]
    identities = set[_Identity]()
    for path in there:
        try:
            identities.add(_identity(path.stat()))
        except OSError:
            continue  # not made yet: its path alone tells it
    if "." in inside or _identity(root.stat()) in identities:
        raise UsageError(
            f"{root}: source and destination (or the ledger's folder) are the same folder; write "
            "another one as `destination:`"
        )
    return _Own(relpaths=frozenset(inside), identities=frozenset(identities))


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


def _open_below(top: int, relpath: str) -> int:
    """Descriptor of the folder ``relpath`` under the open folder ``top``; not through a symlink."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    rest = os.fsencode(relpath) or b"."
    at = top
    try:
        while len(rest) > _STEP_NBYTES and (cut := rest.rfind(b"/", 1, _STEP_NBYTES)) > 0:
            above, at = at, os.open(rest[:cut], flags, dir_fd=at)
            rest = rest[cut + 1 :]
            if above != top:
                os.close(above)
        return os.open(rest, flags, dir_fd=at)
    finally:
        if at != top:
            os.close(at)


def _names(descriptor: int) -> tuple[list[str], list[str], OSError | None]:
    """Names of files and of folders, each sorted by their bytes, and what cut the listing short."""
    files: list[str] = []
    folders: list[str] = []
    failure = None
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                (folders if _says_folder(entry) else files).append(entry.name)
    except OSError as error:
        failure = error
    return sorted(files, key=os.fsencode), sorted(folders, key=os.fsencode), failure


def _says_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False  # asked again, and reported, when its turn comes
