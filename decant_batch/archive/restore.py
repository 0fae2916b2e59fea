"""Archives -> originals, byte for byte (spec section 5).

The walk is that of packing: in file-offset order, each step's bytes come from its page or from the
husk. A page is decoded when its first step is due, a few of them ahead on threads, and let go after
its last; the husk is read front to back, one block at a time.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from decant_batch.archive import arrays, husk, manifest, names, planes
from decant_batch.archive.arrays import Array
from decant_batch.archive.buffers import Buffers
from decant_batch.archive.container import Container, open_container, sync_folder
from decant_batch.archive.husk import GAP
from decant_batch.archive.manifest import Manifest, MemberRecord
from decant_batch.archive.model import Layout, Stamp
from decant_batch.errors import ArchiveDamaged, NameTaken, Unusable

Write = Callable[[memoryview], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """One source that an archive holds. ``relpath`` is where restore puts it below its folder."""

    relpath: str
    size: int
    sha256: str
    stamp: Stamp
    manifest: Manifest
    member: MemberRecord | None = None


def originals(container: Container) -> list[Original]:
    """The sources in an archive: one, or the members of a series.

    Raises
    ------
    ArchiveDamaged
        Where the manifest is missing or cannot be true.
    """
    found = manifest.read(container)
    if found.mode != "series":
        stamp = read_stamp(container)
        return [
            Original(
                relpath=stamp.relpath or found.original_name,
                size=found.original_size,
                sha256=found.original_sha256,
                stamp=stamp,
                manifest=found,
            )
        ]
    return [
        Original(
            relpath=member.relpath,
            size=member.original_size,
            sha256=member.original_sha256,
            stamp=Stamp(),
            manifest=found,
            member=member,
        )
        for member in found.members
    ]


def read_stamp(container: Container) -> Stamp:
    """What ``.zattrs["decant"]["source"]`` records; empty where it records nothing.

    Raises
    ------
    ArchiveDamaged
        Where the recorded path would leave the output folder.
    """
    try:
        document = json.loads(container.get(".zattrs"))["decant"]["source"]
        relpath = document.get("relpath")
        exact = document.get("relpath_bytes") or document.get("name_bytes")
        relpath = names.from_hex(exact) if exact else relpath
        mtime_ns, mode = document.get("mtime_ns"), document.get("mode")
    except (KeyError, TypeError, ValueError, AttributeError):
        return Stamp()  # an archive from elsewhere: the manifest's name stands
    # Names that another system could not hold are written in hexadecimal: only what would leave
    # the folder here is refused.
    parts = relpath.split("/") if isinstance(relpath, str) else []
    if "\0" in (relpath or "") or any(part in ("", ".", "..") for part in parts):
        raise ArchiveDamaged(f"{container.path}: {relpath!r} would leave the output folder")
    return Stamp(
        relpath=relpath if parts else None,
        mtime_ns=mtime_ns if type(mtime_ns) is int else None,
        mode=mode & 0o7777 if type(mode) is int else None,
    )


def rebuild(container: Container, original: Original, write: Write, *, threads: int = 1) -> None:
    """Give the original's bytes to ``write``, in order; the hash is not compared here.

    Raises
    ------
    ArchiveDamaged
        Where the archive does not hold what its manifest says.
    """
    member = original.member
    if member is not None and not original.manifest.series_consolidated:
        _rebuild_nested(container, original, member, write, threads)
    elif original.manifest.mode == "verbatim":
        array = _bytes_array(container, "original", original.size)
        for block in arrays.blocks(container, array):
            write(block)
    else:
        _rebuild_pages(container, original, write, threads)


def _rebuild_nested(
    container: Container, original: Original, member: MemberRecord, write: Write, threads: int
) -> None:
    """Rebuild a member of a nested series from its own bundle."""
    path = container.path / member.subarchive
    if container.kind != "folder" or not member.subarchive or not path.exists():
        raise ArchiveDamaged(f"{container.path}: bundle {member.subarchive!r} is missing")
    with open_container(path) as bundle:
        inner = originals(bundle)
        if len(inner) != 1 or inner[0].member is not None or inner[0].size != original.size:
            raise ArchiveDamaged(f"{path}: is not the bundle of {member.relpath}")
        rebuild(bundle, inner[0], write, threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where the pages of one original come from."""

    container: Container
    pixels: Array
    found: Layout
    buffers: Buffers


def _rebuild_pages(container: Container, original: Original, write: Write, threads: int) -> None:
    pixels = arrays.open_array(container, "0")
    found = layout(container, original, pixels)
    if pixels.dtype.newbyteorder("<") != np.dtype(found.geometry.dtype).newbyteorder("<"):
        raise ArchiveDamaged(
            f"{container.path}: array 0 holds {pixels.dtype}, not {found.geometry.dtype}"
        )
    name = original.member.husk_array if original.member else "husk"
    gaps = _Gaps(container, _bytes_array(container, name, found.husk_nbytes))
    buffers = Buffers(found.geometry.page_nbytes)
    source = _Source(container=container, pixels=pixels, found=found, buffers=buffers)
    with ThreadPoolExecutor(threads) as pool:
        for step in _steps(source, pool, threads):
            if isinstance(step, int):
                gaps.give(step, write)
            else:
                write(step)


def layout(container: Container, original: Original, pixels: Array) -> Layout:
    """Layout of a byte-exact original, from its manifest, checked against array ``0``."""
    record = original.member or original.manifest
    return manifest.layout(
        record.pages,
        size=original.size,
        husk_nbytes=record.husk_raw_size,
        byteorder=record.byteorder,
        plane_order=original.manifest.plane_order,
        array_shape=pixels.shape,
        where=str(container.path),
    )


def _bytes_array(container: Container, name: str, nbytes: int) -> Array:
    """A 1-D uint8 array of just ``nbytes``."""
    array = arrays.open_array(container, name)
    if array.shape != (nbytes,) or array.dtype != np.uint8:
        raise ArchiveDamaged(f"{container.path}: array {name}: {array.shape}, not {nbytes} bytes")
    return array


class _Gaps:
    """The husk, given out front to back; one block is held at a time."""

    def __init__(self, container: Container, array: Array) -> None:
        self._blocks = arrays.blocks(container, array)
        self._rest = memoryview(b"")

    def give(self, nbytes: int, write: Write) -> None:
        """Give the next ``nbytes`` to ``write``."""
        while nbytes:
            if not self._rest:
                self._rest = next(self._blocks)
            part, self._rest = self._rest[:nbytes], self._rest[nbytes:]
            write(part)
            nbytes -= len(part)


def _steps(source: _Source, pool: ThreadPoolExecutor, threads: int) -> Iterator[memoryview | int]:
    """The walk's steps: bytes of a page, valid until the next step, or the length of a gap."""
    walk = husk.walk(source.found)
    is_page = walk.page != GAP
    pages, first = np.unique(walk.page[is_page], return_index=True)
    left = np.bincount(walk.page[is_page], minlength=source.found.page_count)
    ahead = _Pages(source, pool, threads, iter(pages[np.argsort(first)].tolist()))
    live: dict[int, npt.NDArray[np.uint8]] = {}
    for page, position, nbytes in zip(walk.page, walk.position, walk.nbytes, strict=True):
        if page == GAP:
            yield int(nbytes)
            continue
        if page not in live:
            live[page] = ahead.next()
        yield live[page].data[position : position + nbytes]
        left[page] -= 1
        if not left[page]:
            source.buffers.give(live.pop(page))


class _Pages:
    """Pages decoded ahead of their need, in the order of need, as many as there are threads."""

    def __init__(
        self,
        source: _Source,
        pool: ThreadPoolExecutor,
        threads: int,
        order: Iterator[int],
    ) -> None:
        self._source = source
        self._pool = pool
        self._order = order
        self._row: deque[Future[npt.NDArray[np.uint8]]] = deque()
        for _ in range(threads):
            self._begin()

    def next(self) -> npt.NDArray[np.uint8]:
        """Serialized bytes of the page that is needed next."""
        raw = self._row.popleft().result()
        self._begin()
        return raw

    def _begin(self) -> None:
        page = next(self._order, None)
        if page is not None:
            self._row.append(self._pool.submit(_decode_page, self._source, page))


def _decode_page(source: _Source, page: int) -> npt.NDArray[np.uint8]:
    """Serialized bytes of one page, as they stand in the source."""
    found, pixels, geometry = source.found, source.pixels, source.found.geometry
    at = planes.coordinate(int(found.index[page]), found.axes, found.leading)
    plane = source.buffers.take().view(pixels.dtype).reshape(geometry.shape)
    arrays.read_plane(source.container, pixels, at, plane)
    if pixels.dtype != pixels.dtype.newbyteorder("<"):
        plane = plane.byteswap(inplace=True).view(pixels.dtype.newbyteorder("<"))
    return planes.serialize(plane, geometry, source.buffers)


# --- to files ---------------------------------------------------------------------------------


def restore(
    archive: Path,
    directory: Path,
    *,
    force: bool = False,
    members: Sequence[str] | None = None,
    threads: int = 1,
) -> list[Path]:
    """Write the originals of ``archive`` below ``directory``; the paths written.

    Each original goes to its recorded relative path, with its dates and permissions where they were
    recorded, and gets its name only after its sha256 was compared. ``members`` are glob patterns on
    the relative paths of a series' members; none means all.

    Raises
    ------
    NameTaken
        Where a file stands at an original's path and ``force`` is not set.
    ArchiveDamaged
        Where an original cannot be rebuilt; nothing is left of it.
    Unusable
        Where ``directory`` has no room.
    """
    with open_container(archive) as container:
        return [
            _restore_one(container, original, directory, force=force, threads=threads)
            for original in _chosen(originals(container), members, archive)
        ]


def _chosen(found: list[Original], members: Sequence[str] | None, archive: Path) -> list[Original]:
    if members is None:
        return found
    chosen = [
        original
        for original in found
        if any(fnmatch.fnmatchcase(original.relpath, pattern) for pattern in members)
    ]
    if not chosen:
        raise NameTaken(f"{archive}: no member matches {', '.join(members)}; inspect lists them")
    return chosen


def _restore_one(
    container: Container, original: Original, directory: Path, *, force: bool, threads: int
) -> Path:
    target = directory / original.relpath
    if not force and os.path.lexists(target):
        raise NameTaken(f"{target}: exists already; --force replaces it")
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if original.size > free:
        raise Unusable(f"{directory}: {original.size} bytes needed for {original.relpath}, {free}"
                       " free; choose another folder with -o")  # fmt: skip
    partial = target.parent / f".decant-{os.getpid()}-{os.urandom(4).hex()}.partial"
    try:
        with partial.open("xb", buffering=0) as file:
            digest = hashlib.sha256()
            rebuild(container, original, _writer(file.write, digest.update), threads=threads)
            _compare(container, original, digest.hexdigest(), file.tell())
            os.fsync(file.fileno())
        _put_back(partial, original.stamp)
        _publish(partial, target, force=force)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(target.parent)
    return target


def _writer(write: Callable[[memoryview], int | None], update: Write) -> Write:
    """Write and hash; an unbuffered file may take less than it was given."""

    def both(block: memoryview) -> None:
        update(block)
        while block:
            block = block[write(block) or 0 :]

    return both


def _compare(container: Container, original: Original, sha256: str, nbytes: int) -> None:
    problem = difference(original, sha256, nbytes)
    if problem is not None:
        raise ArchiveDamaged(f"{container.path}: {original.relpath}: {problem}")


def difference(original: Original, sha256: str, nbytes: int) -> str | None:
    """What differs between a rebuilt file and its original; None where they are equal."""
    if nbytes != original.size:
        return f"rebuilt to {nbytes} bytes, not {original.size}"
    if sha256 != original.sha256:
        return f"rebuilt with sha256 {sha256}, not {original.sha256}"
    return None


def _put_back(file: Path, stamp: Stamp) -> None:
    """Dates and permissions, where they were recorded."""
    if stamp.mode is not None:
        file.chmod(stamp.mode)
    if stamp.mtime_ns is not None:
        with contextlib.suppress(OverflowError):  # a time that this system cannot hold
            os.utime(file, ns=(stamp.mtime_ns, stamp.mtime_ns))


def _publish(partial: Path, target: Path, *, force: bool) -> None:
    """Give the file its name; without ``force`` never over another, also not in a race."""
    if force:
        partial.replace(target)
        return
    try:
        target.hardlink_to(partial)
    except FileExistsError as error:
        raise NameTaken(f"{target}: exists already; --force replaces it") from error
    except OSError:  # a file system without hard links: what was checked above must do
        partial.rename(target)
