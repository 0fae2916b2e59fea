"""Archives -> originals, byte for byte (spec section 5).

The walk is that of packing: in file-offset order, each step's bytes come from its page or from the
husk. A page is decoded when its first step is due, a few of them ahead on threads, and let go after
its last; the husk is read front to back, one block at a time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from decant_batch.archive import arrays, husk, jsonstream, manifest, names, planes
from decant_batch.archive.arrays import Array
from decant_batch.archive.buffers import Buffers
from decant_batch.archive.container import Container, open_container
from decant_batch.archive.husk import GAP
from decant_batch.archive.manifest import Manifest, MemberRecord
from decant_batch.archive.many import Many
from decant_batch.archive.model import Layout, Stamp
from decant_batch.errors import ArchiveDamaged

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


class _Members(Sequence[Original]):
    """The originals of a series, each made when it is asked for: they are many."""

    def __init__(self, container: Container, found: Manifest) -> None:
        self._container = container
        self._manifest = found
        self._stamps = _member_stamps(container, len(found.members))

    def __len__(self) -> int:
        return len(self._manifest.members)

    @overload
    def __getitem__(self, i: int) -> Original: ...

    @overload
    def __getitem__(self, i: slice) -> list[Original]: ...

    def __getitem__(self, i: int | slice) -> Original | list[Original]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        member, stamp = self._manifest.members[i], Stamp()
        if self._stamps is not None:
            stamp = _stamp(json.loads(self._stamps[i]), self._container)
        return Original(
            relpath=stamp.relpath or member.relpath,
            size=member.original_size,
            sha256=member.original_sha256,
            stamp=stamp,
            manifest=self._manifest,
            member=member,
        )


def originals(container: Container) -> Sequence[Original]:
    """The sources in an archive: one, or the members of a series.

    Raises
    ------
    ArchiveDamaged
        Where the manifest is missing or cannot be true.
    """
    found = manifest.read(container)
    if found.mode == "series":
        return _Members(container, found)
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


def _member_stamps(container: Container, count: int) -> Many[bytes] | None:
    """What is recorded of each member beside its bytes; None where nothing is, or not of all.

    Each is checked here: that its path stays in the output folder, and is no other's.
    """
    lines = Many[bytes]()

    def relpaths() -> Iterator[str]:
        for document in jsonstream.elements(container.get_parts(manifest.STAMPS)):
            lines.append(arrays.dump(document))
            yield _stamp(document, container).relpath or ""

    try:
        are_distinct = names.are_distinct(relpaths())
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return lines if are_distinct and len(lines) == count else None


def read_stamp(container: Container) -> Stamp:
    """What ``.zattrs["decant"]["source"]`` records; empty where it records nothing.

    Raises
    ------
    ArchiveDamaged
        Where the recorded path would leave the output folder.
    """
    try:
        document = json.loads(container.get(".zattrs"))["decant"]["source"]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return Stamp()  # an archive from elsewhere: the manifest's name stands
    return _stamp(document, container)


def _stamp(document: Any, container: Container) -> Stamp:  # noqa: ANN401 - JSON
    try:
        relpath = document.get("relpath")
        exact = document.get("relpath_bytes") or document.get("name_bytes")
        relpath = names.from_hex(exact) if exact else relpath
        mtime_ns, mode = document.get("mtime_ns"), document.get("mode")
    except (TypeError, ValueError, AttributeError):
        return Stamp()
    # Names that another system could not hold are written in hexadecimal: only what would leave
    # the folder here is refused.
    parts = relpath.split("/") if isinstance(relpath, str) else []
    leaves = any(part in ("", ".", "..") or "\0" in part for part in parts)
    if leaves or (parts and not names.is_encodable(str(relpath))):
        raise ArchiveDamaged(f"{container.path}: {relpath!r} would leave the output folder")
    return Stamp(
        relpath=relpath if parts else None,
        mtime_ns=mtime_ns if type(mtime_ns) is int else None,
        mode=mode & 0o777 if type(mode) is int else None,
    )


def rebuilder(
    container: Container, original: Original, *, threads: int = 1
) -> Callable[[Write], None]:
    """What gives the original's bytes to a ``write``, in order; call it while the container
    is open.

    Manifest and array documents are read and checked now, before a byte is given. The hash of what
    is given is not compared here.

    Raises
    ------
    ArchiveDamaged
        Where the archive does not hold what its manifest says; now, or when a chunk is damaged.
    """
    member = original.member
    if member is not None and not original.manifest.series_consolidated:
        return _of_bundle(container, original, member, threads)
    if original.manifest.mode == "verbatim":
        array = _bytes_array(container, "original", original.size)
        return partial(_give_blocks, container, array)
    return _of_pages(container, original, threads)


def rebuild(container: Container, original: Original, write: Write, *, threads: int = 1) -> None:
    """Give the original's bytes to ``write``, in order; see ``rebuilder``."""
    rebuilder(container, original, threads=threads)(write)


def _give_blocks(container: Container, array: Array, write: Write) -> None:
    for block in arrays.blocks(container, array):
        write(block)


def _of_bundle(
    container: Container, original: Original, member: MemberRecord, threads: int
) -> Callable[[Write], None]:
    """A member of a nested series, from its own bundle."""
    path = container.path / member.subarchive
    if container.kind != "folder" or not member.subarchive or not path.exists():
        raise ArchiveDamaged(f"{container.path}: bundle {member.subarchive!r} is missing")

    def give(write: Write) -> None:
        with open_container(path) as bundle:
            inner = originals(bundle)
            if len(inner) != 1 or inner[0].member is not None or inner[0].size != original.size:
                raise ArchiveDamaged(f"{path}: is not the bundle of {member.relpath}")
            rebuild(bundle, inner[0], write, threads=threads)

    return give


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where the pages of one original come from."""

    container: Container
    pixels: Array
    found: Layout
    buffers: Buffers


def _of_pages(container: Container, original: Original, threads: int) -> Callable[[Write], None]:
    """A byte-exact original: its pages and its husk."""
    pixels = arrays.open_array(container, "0")
    found = layout(container, original, pixels)
    if pixels.dtype.newbyteorder("<") != np.dtype(found.geometry.dtype).newbyteorder("<"):
        raise ArchiveDamaged(
            f"{container.path}: array 0 holds {pixels.dtype}, not {found.geometry.dtype}"
        )
    name = original.member.husk_array if original.member else "husk"
    rest = _bytes_array(container, name, found.husk_nbytes)
    buffers = Buffers(found.geometry.page_nbytes)
    source = _Source(container=container, pixels=pixels, found=found, buffers=buffers)
    return partial(_give_pages, source, rest, threads)


def _give_pages(source: _Source, rest: Array, threads: int, write: Write) -> None:
    gaps = _Gaps(source.container, rest)
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


def difference(original: Original, sha256: str, nbytes: int) -> str | None:
    """What differs between a rebuilt file and its original; None where they are equal."""
    if nbytes != original.size:
        return f"rebuilt to {nbytes} bytes, not {original.size}"
    if sha256 != original.sha256:
        return f"rebuilt with sha256 {sha256}, not {original.sha256}"
    return None
