"""Archives that others wrote: all that the spec allows is read, nothing that cannot be true is."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numcodecs.pickles
import pytest
from hypothesis import given, settings

from decant_batch.archive import restore, verify
from decant_batch.errors import ArchiveDamaged, DecantError, NameTaken, UnknownFormat, Unusable
from tests import foreign, recover, tiffs
from tests.foreign import BUSY, MANIFEST, PLAIN, Json, Keys, Style

CASES = foreign.cases()
Change = Callable[[Json], object]


# --- what must be read ------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_restores_and_verifies(name: str, threads: int, tmp_path: Path) -> None:
    case = CASES[name]
    archive = foreign.write(case.keys, tmp_path, case.form)
    paths = restore(archive, tmp_path / "out", threads=threads)
    assert {path.relative_to(tmp_path / "out").as_posix() for path in paths} == {*case.originals}
    assert _files(tmp_path / "out") == case.originals
    found = {each.name: (each.nbytes, each.problem) for each in verify(archive, threads=threads)}
    assert found == {name: (len(data), None) for name, data in case.originals.items()}
    assert recover.recover(archive) == case.originals


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@given(spec=tiffs.tiff_specs())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_restores_any_layout(
    spec: tiffs.TiffSpec, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source, folder = foreign.original(spec), tmp_path_factory.mktemp("any")
    style = Style(stored=">" if spec.seed % 2 else "<", skip_fill=True, husk_chunk=100)
    archive = foreign.write(foreign.byte_exact(source, style), folder)
    assert [path.read_bytes() for path in restore(archive, folder / "out")] == [source.data]
    assert [each.problem for each in verify(archive)] == [None]


def test_goes_to_its_recorded_path(tmp_path: Path) -> None:
    source = foreign.original(BUSY)
    keys = foreign.byte_exact(source, replace(PLAIN, relpath="day 1/größe.tif"), name="größe.tif")
    paths = restore(foreign.write(keys, tmp_path), tmp_path / "out")
    assert paths == [tmp_path / "out" / "day 1" / "größe.tif"]
    assert _files(tmp_path / "out") == {"day 1/größe.tif": source.data}


@pytest.mark.parametrize("name", ["nested", "consolidated-zip"])
def test_restores_chosen_members_alone(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    archive = foreign.write(case.keys, tmp_path, case.form)
    restore(archive, tmp_path / "out", members=["day 1/*"])
    chosen = {key: data for key, data in case.originals.items() if key.startswith("day 1/")}
    assert _files(tmp_path / "out") == chosen


def test_never_writes_over_a_file_unasked(tmp_path: Path) -> None:
    archive = foreign.write(foreign.verbatim(b"archived"), tmp_path)
    target = tmp_path / "out" / "a.txt"
    target.parent.mkdir()
    target.write_bytes(b"mine")
    with pytest.raises(NameTaken):
        restore(archive, tmp_path / "out")
    assert _files(tmp_path / "out") == {"a.txt": b"mine"}
    restore(archive, tmp_path / "out", force=True)
    assert _files(tmp_path / "out") == {"a.txt": b"archived"}


# --- what must be refused ---------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, -1, 1.5, "1", "1.0", None, True, [1], {}])
def test_unknown_format_is_refused(version: object, tmp_path: Path) -> None:
    keys = _changed(foreign.verbatim(b"x"), lambda document: document.update(format=version))
    _assert_refused(foreign.write(keys, tmp_path), tmp_path, UnknownFormat)


def test_missing_format_is_refused(tmp_path: Path) -> None:
    keys = _changed(foreign.verbatim(b"x"), lambda document: document.pop("format"))
    _assert_refused(foreign.write(keys, tmp_path), tmp_path, UnknownFormat)


def _changed(keys: Keys, change: Change) -> Keys:
    return foreign.edited(keys, MANIFEST, change)


def _assert_refused(archive: Path, folder: Path, error: type[DecantError] = ArchiveDamaged) -> None:
    """Both refuse, and nothing anywhere below ``folder`` is written or changed."""
    before = _files(folder)
    with pytest.raises(error):
        verify(archive)
    with pytest.raises(error):
        restore(archive, folder / "out")
    with pytest.raises(error):
        restore(archive, folder / "out", force=True)
    assert _files(folder) == before


def _assert_damaged(archive: Path, folder: Path) -> None:
    """Verify tells of it, in either way; restore raises, and leaves no file behind."""
    before = _files(folder)
    try:
        problems = [each.problem for each in verify(archive)]
    except ArchiveDamaged:
        problems = ["refused"]
    assert any(problems)
    with pytest.raises(ArchiveDamaged):
        restore(archive, folder / "out")
    assert _files(folder) == before


LEAVING = (
    *(
        "/etc/a.tif",
        "//host/share/a.tif",
        "..",
        "../a.tif",
        "b/../../a.tif",
        "b/..",
        ".",
        "./a.tif",
    ),
    *(
        "a\0.tif",
        "\0",
        "C:\\x",
        "C:x",
        "c:/x",
        "\\\\host\\x",
        "..\\a.tif",
        "b\\a.tif",
        "",
        "b//a",
        "b/",
    ),
)


@pytest.mark.parametrize("name", [*LEAVING, "b/a.tif"])
@pytest.mark.parametrize("mode", ["byte-exact", "verbatim"])
def test_original_name_cannot_leave_the_folder(name: str, mode: str, tmp_path: Path) -> None:
    exact = foreign.byte_exact(foreign.original(BUSY), name=name)
    keys = exact if mode == "byte-exact" else foreign.verbatim(b"x", name=name)
    _assert_refused(foreign.write(keys, tmp_path), tmp_path)


@pytest.mark.parametrize("name", LEAVING)
@pytest.mark.parametrize("case", ["nested", "consolidated-folder"])
def test_member_cannot_leave_the_folder(name: str, case: str, tmp_path: Path) -> None:
    keys = _changed(CASES[case].keys, _first_member(relpath=name))
    _assert_refused(foreign.write(keys, tmp_path, "folder"), tmp_path)


def _first_member(**fields: object) -> Change:
    return lambda document: document["members"][0].update(fields)


def test_absolute_member_writes_nothing_there(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.tif"
    keys = _changed(CASES["nested"].keys, _first_member(relpath=str(target)))
    _assert_refused(foreign.write(keys, tmp_path, "folder"), tmp_path)
    assert not target.exists()


@pytest.mark.parametrize("name", ["..", "../a.tif", "/etc/a.tif", "b/../../a.tif", "a\0.tif"])
def test_recorded_path_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    keys = foreign.verbatim(b"x", replace(PLAIN, relpath=name))
    _assert_refused(foreign.write(keys, tmp_path), tmp_path)


@pytest.mark.parametrize("name", LEAVING)
def test_subarchive_cannot_leave_the_archive(name: str, tmp_path: Path) -> None:
    """Not even where there is a good bundle at the place that is named."""
    (tmp_path / "inner").mkdir()
    outside = foreign.write(foreign.bundles()["s01.tif"][1], tmp_path)
    outside.rename(tmp_path / "a.tif")
    keys = _changed(CASES["nested"].keys, _first_member(subarchive=name))
    archive = foreign.write(keys, tmp_path / "inner", "folder")
    _assert_damaged_member(archive, tmp_path)


def _assert_damaged_member(archive: Path, folder: Path) -> None:
    """The first member is told of; the others may be restored."""
    with pytest.raises(ArchiveDamaged):
        restore(archive, folder / "out", members=["s01.tif"])
    assert not (folder / "out" / "s01.tif").exists()
    try:
        problems = {each.name: each.problem for each in verify(archive)}
    except ArchiveDamaged:
        return
    assert problems["s01.tif"]


def test_two_members_with_one_path_are_refused(tmp_path: Path) -> None:
    keys = _changed(CASES["nested"].keys, _first_member(relpath="day 1/s02.tif"))
    _assert_refused(foreign.write(keys, tmp_path, "folder"), tmp_path)


def _of_page(page: int, **fields: object) -> Change:
    return lambda document: document["pages"][page].update(fields)


def _of_segment(key: str, change: Callable[[int], object]) -> Change:
    """The first value of ``key`` of the second page is changed."""

    def edit(document: Json) -> None:
        values = document["pages"][1][key]
        values[0] = change(values[0])

    return edit


def _of_all_pages(**fields: object) -> Change:
    return lambda document: [page.update(fields) for page in document["pages"]]


def _of_all(**fields: object) -> Change:
    return lambda document: document.update(fields)


def _overlap(document: Json) -> None:
    first, second = document["pages"][:2]
    second["dataoffsets"] = first["dataoffsets"]


def _overlap_by_one(document: Json) -> None:
    """The earliest segment of the file is put one byte into its successor."""
    runs = sorted(
        (at, count, page["index"], k)
        for page in document["pages"]
        for k, (at, count) in enumerate(
            zip(page["dataoffsets"], page["databytecounts"], strict=True)
        )
    )
    (_, count, page, k), (following, *_) = runs[:2]
    document["pages"][page]["dataoffsets"][k] = following - count + 1


LIES: Mapping[str, Change] = {
    "count-past-size": _of_segment("databytecounts", lambda count: count + 10**6),
    "count-past-everything": _of_segment("databytecounts", lambda _: 2**62),
    "count-past-int64": _of_segment("databytecounts", lambda _: 2**64),
    "count-negative": _of_segment("databytecounts", lambda count: -count),
    "count-one-less": _of_segment("databytecounts", lambda count: count - 1),
    "count-fraction": _of_segment("databytecounts", lambda count: count + 0.5),
    "count-text": _of_segment("databytecounts", str),
    "count-null": _of_segment("databytecounts", lambda _: None),
    "offset-negative": _of_segment("dataoffsets", lambda _: -1),
    "offset-past-size": _of_segment("dataoffsets", lambda at: at + 10**6),
    "offset-at-int64-end": _of_segment("dataoffsets", lambda _: 2**63 - 1),
    "offset-past-int64": _of_segment("dataoffsets", lambda _: 2**63),
    "offsets-fewer-than-counts": lambda document: document["pages"][0]["dataoffsets"].pop(),
    "overlap": _overlap,
    "overlap-by-one": _overlap_by_one,
    "husk-one-more": lambda document: document.update(husk_raw_size=document["husk_raw_size"] + 1),
    "husk-one-less": lambda document: document.update(husk_raw_size=document["husk_raw_size"] - 1),
    "husk-negative": _of_all(husk_raw_size=-1),
    "size-zero": _of_all(original_size=0),
    "size-negative": _of_all(original_size=-(10**6)),
    "size-huge": _of_all(original_size=2**62),
    "size-past-int64": _of_all(original_size=2**64),
    "size-and-husk-huge": _of_all(original_size=2**62 + 1512, husk_raw_size=2**62),
    "size-text": _of_all(original_size="2385"),
    "page-huge": _of_page(1, shape=[10**9, 10**9]),
    "pages-huge": _of_all_pages(shape=[10**9, 10**9]),
    "pages-huge-counts": _of_all_pages(
        shape=[10**9, 10**9], dataoffsets=[0], databytecounts=[2 * 10**18]
    ),
    "pages-past-int64": _of_all_pages(shape=[2**62, 2**62]),
    "pages-of-no-size": _of_all_pages(shape=[0, 0]),
    "pages-negative": _of_all_pages(shape=[-21, -9]),
    "pages-one-dimension": _of_all_pages(shape=[189]),
    "pages-no-dimension": _of_all_pages(shape=[]),
    "pages-four-dimensions": _of_all_pages(shape=[21, 9, 1, 1]),
    "pages-turned": _of_all_pages(shape=[9, 21]),
    "one-page-turned": _of_page(1, shape=[9, 21]),
    "index-past-end": _of_page(1, index=4),
    "index-huge": _of_page(1, index=2**62),
    "index-negative": _of_page(1, index=-1),
    "index-twice": _of_page(1, index=0),
    "no-pages": _of_all(pages=[]),
    "pages-null": _of_all(pages=None),
    "page-null": _of_all(pages=[None]),
    "one-page-lost": lambda document: document["pages"].pop(),
    "plane-order-too-long": _of_all(plane_order=["z", "c"]),
    "plane-order-of-numbers": _of_all(plane_order=[1]),
    "dtype-unknown": _of_all_pages(dtype="pixel"),
    "dtype-object": _of_all_pages(dtype="object"),
    "dtype-wider": _of_all_pages(dtype="uint32"),
    "dtype-other": _of_all_pages(dtype="float16"),
    "dtype-text": _of_all_pages(dtype="S2"),
    "dtype-record": _of_all_pages(dtype="u1,u1"),
    "predictor": _of_all_pages(predictor=2),
    "planar-unknown": _of_all_pages(planarconfig=3),
    "tile-without-length": _of_all_pages(tilewidth=16),
    "tile-negative": _of_all_pages(tilewidth=-16, tilelength=-16),
    "byteorder-unknown": _of_all(byteorder="middle"),
    "mode-unknown": _of_all(mode="lossy"),
    "mode-missing": lambda document: document.pop("mode"),
    "name-missing": lambda document: document.pop("original_name"),
    "sha256-other": _of_all(original_sha256="0" * 64),
    "sha256-empty": _of_all(original_sha256=""),
}


@contextmanager
def _in_little_memory() -> Iterator[None]:
    """Fails where the block held more than 64 MB at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", LIES)
def test_manifests_that_cannot_be_true(name: str, tmp_path: Path) -> None:
    keys = foreign.byte_exact(foreign.original(BUSY))
    archive = foreign.write(_changed(keys, LIES[name]), tmp_path)
    with _in_little_memory():
        _assert_damaged(archive, tmp_path)


MANIFESTS: Mapping[str, bytes] = {
    "empty": b"",
    "no-json": b"format: 1",
    "not-utf8": b'{"format": 1, "mode": "\xff"}',
    "cut-off": b'{"format": 1, "mode": ',
    "a-list": b"[1]",
    "a-number": b"1",
    "null": b"null",
    "deep": b"[" * 200_000,
    "deep-in-a-field": b'{"format": 1, "pages": ' + b"[" * 200_000,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", MANIFESTS)
def test_what_is_no_manifest_is_refused(name: str, tmp_path: Path) -> None:
    keys = {**foreign.verbatim(b"x"), MANIFEST: MANIFESTS[name]}
    _assert_refused(foreign.write(keys, tmp_path), tmp_path)


@pytest.mark.parametrize("form", ["zip", "folder"])
def test_without_a_manifest_is_refused(form: foreign.ContainerForm, tmp_path: Path) -> None:
    keys = foreign.verbatim(b"x")
    del keys[MANIFEST]
    _assert_refused(foreign.write(keys, tmp_path, form), tmp_path)


ARRAY_LIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "shape-longer": ("0", {"shape": [4, 22, 9]}),
    "shape-shorter": ("0", {"shape": [3, 21, 9]}),
    "shape-huge": ("0", {"shape": [4, 10**9, 10**9], "chunks": [1, 10**9, 10**9]}),
    "shape-negative": ("0", {"shape": [-4, 21, 9]}),
    "shape-flat": ("0", {"shape": [756], "chunks": [756]}),
    "shape-null": ("0", {"shape": None}),
    "chunks-huge": ("0", {"chunks": [1, 2**20, 2**20]}),
    "chunks-zero": ("0", {"chunks": [0, 21, 9]}),
    "chunks-fewer": ("0", {"chunks": [21, 9]}),
    "chunks-smaller": ("0", {"chunks": [1, 21, 8]}),
    "dtype-other-width": ("0", {"dtype": "<u4"}),
    "dtype-other-kind": ("0", {"dtype": "<i2"}),
    "dtype-object": ("0", {"dtype": "|O"}),
    "dtype-none": ("0", {"dtype": "pixel"}),
    "other-format": ("0", {"zarr_format": 3}),
    "other-codec": ("0", {"compressor": {"id": "zlib", "level": 1}}),
    "unknown-codec": ("0", {"compressor": {"id": "no-such-codec"}}),
    "codec-without-id": ("0", {"compressor": {"level": 1}}),
    "codec-text": ("0", {"compressor": "zlib"}),
    "unknown-filter": ("0", {"filters": [{"id": "no-such-filter"}]}),
    "other-filter": ("0", {"filters": [{"id": "delta", "dtype": "<u2"}]}),
    "fill-text": ("0", {"fill_value": "many"}),
    "husk-longer": ("husk", {"shape": [10**15]}),
    "husk-longer-in-one-chunk": ("husk", {"shape": [10**15], "chunks": [10**15]}),
    "husk-shorter": ("husk", {"shape": [3]}),
    "husk-two-dimensions": ("husk", {"shape": [10, 10], "chunks": [10, 10]}),
    "husk-wider": ("husk", {"dtype": "<u2"}),
    "husk-chunk-zero": ("husk", {"chunks": [0]}),
    "husk-chunk-negative": ("husk", {"chunks": [-1]}),
    "husk-chunk-shorter": ("husk", {"chunks": [7]}),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ARRAY_LIES)
def test_arrays_that_cannot_be_true(name: str, tmp_path: Path) -> None:
    key, fields = ARRAY_LIES[name]
    keys = foreign.byte_exact(foreign.original(BUSY))
    changed = foreign.edited(keys, f"{key}/.zarray", lambda document: document.update(fields))
    with _in_little_memory():
        _assert_damaged(foreign.write(changed, tmp_path), tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("chunk", [2**20, 2**50])
@pytest.mark.parametrize("size", [2**50, 2**62])
def test_a_verbatim_that_promises_a_petabyte(size: int, chunk: int, tmp_path: Path) -> None:
    """Its sizes agree: that there is no room for it may be what is noticed first."""
    changed = foreign.edited(
        _changed(foreign.verbatim(b"x" * 100), _of_all(original_size=size)),
        "original/.zarray",
        lambda document: document.update(shape=[size], chunks=[chunk]),
    )
    archive = foreign.write(changed, tmp_path)
    with _in_little_memory():
        assert verify(archive)[0].problem
        with pytest.raises((ArchiveDamaged, Unusable)):
            restore(archive, tmp_path / "out")
    assert _files(tmp_path / "out") == {}


@pytest.mark.timeout(20)
def test_pages_of_an_exabyte_whose_sizes_agree(tmp_path: Path) -> None:
    side, nbytes = 10**9, 2 * 10**18
    keys = foreign.byte_exact(foreign.original(tiffs.TiffSpec()))
    husk = json.loads(keys[MANIFEST])["husk_raw_size"]

    def grow(document: Json) -> None:
        document["original_size"] = nbytes + husk
        document["pages"][0].update(shape=[side, side], dataoffsets=[0], databytecounts=[nbytes])

    grown = foreign.edited(
        _changed(keys, grow),
        "0/.zarray",
        lambda document: document.update(shape=[1, side, side], chunks=[1, side, side]),
    )
    archive = foreign.write(grown, tmp_path)
    with _in_little_memory():
        _assert_damaged(archive, tmp_path)


class _Trap:
    """Unpickled, it makes a file."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self._target,)


@pytest.mark.parametrize("key", ["compressor", "filters"])
def test_a_chunk_is_never_unpickled(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pickle codec runs whatever code the chunk says: an archive is data."""
    # numcodecs before 0.16.6, and 0.17.0, unpickle unasked (GHSA-jqc8-qjfv-5m6r).
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    target = tmp_path / "trap"
    config = {"id": "pickle", "protocol": 5}
    keys = foreign.edited(
        foreign.verbatim(b"abc", Style()),
        "original/.zarray",
        lambda document: document.update({key: config if key == "compressor" else [config]}),
    )
    keys["original/0"] = pickle.dumps(_Trap(target))
    _assert_damaged(foreign.write(keys, tmp_path), tmp_path)
    assert not target.exists()


# --- what must be noticed ---------------------------------------------------------------------


@pytest.mark.parametrize("form", ["zip", "folder"])
@pytest.mark.parametrize("chunk", ["0/2/0/0", "husk/0"])
@pytest.mark.parametrize("codec", foreign.CODECS)
def test_a_flipped_byte_in_a_chunk(
    codec: str, chunk: str, form: foreign.ContainerForm, tmp_path: Path
) -> None:
    """The zip's own checksum agrees: it was made after the byte was flipped."""
    style = replace(PLAIN, compressor=foreign.CODECS[codec])
    keys = foreign.byte_exact(foreign.original(BUSY), style)
    keys[chunk] = _flipped(keys[chunk], len(keys[chunk]) // 2)
    _assert_damaged(foreign.write(keys, tmp_path, form), tmp_path)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("at", range(4, 16))
@pytest.mark.parametrize("filters", [(), foreign.FILTERS["delta"]])
def test_a_flipped_byte_in_a_blosc_header(
    at: int, filters: tuple[Json, ...], tmp_path: Path
) -> None:
    """Sizes stand there: decoded, of a block, encoded (4 bytes each). Not all are always needed."""
    source = foreign.original(BUSY)
    keys = foreign.byte_exact(source, replace(PLAIN, filters=filters))
    keys["0/2/0/0"] = _flipped(keys["0/2/0/0"], at)
    archive = foreign.write(keys, tmp_path)
    if any(each.problem for each in verify(archive)):
        _assert_damaged(archive, tmp_path)
    else:
        assert restore(archive, tmp_path / "out")[0].read_bytes() == source.data


@pytest.mark.parametrize("chunk", ["0/2/0/0", "husk/0"])
def test_a_flipped_byte_in_a_zip(chunk: str, tmp_path: Path) -> None:
    keys = foreign.byte_exact(foreign.original(BUSY))
    archive = foreign.write(keys, tmp_path)
    data = archive.read_bytes()
    archive.write_bytes(_flipped(data, data.index(keys[chunk]) + len(keys[chunk]) // 2))
    _assert_damaged(archive, tmp_path)


@pytest.mark.parametrize("form", ["zip", "folder"])
@pytest.mark.parametrize("key", ["0/2/0/0", "husk/0", "0/.zarray", "husk/.zarray"])
def test_a_missing_key(key: str, form: foreign.ContainerForm, tmp_path: Path) -> None:
    keys = foreign.byte_exact(foreign.original(BUSY))
    del keys[key]
    _assert_damaged(foreign.write(keys, tmp_path, form), tmp_path)


@pytest.mark.parametrize("key", ["0/2/0/0", "husk/0"])
@pytest.mark.parametrize("codec", foreign.CODECS)
@pytest.mark.parametrize("nbytes", [0, 1, -1, -20])
def test_a_chunk_cut_off(nbytes: int, codec: str, key: str, tmp_path: Path) -> None:
    style = replace(PLAIN, compressor=foreign.CODECS[codec])
    keys = foreign.byte_exact(foreign.original(BUSY), style)
    keys[key] = keys[key][:nbytes]
    _assert_damaged(foreign.write(keys, tmp_path), tmp_path)


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("codec", foreign.CODECS)
def test_a_chunk_of_another_length(codec: str, more: bool, tmp_path: Path) -> None:
    """Well encoded, but one row more or less than a plane."""
    style = replace(PLAIN, compressor=foreign.CODECS[codec])
    source = foreign.original(BUSY)
    keys = foreign.byte_exact(source, style)
    plane = tiffs.planes(replace(BUSY, shape=(22, 9), pages=1))[0, :, :, 0]
    keys["0/2/0/0"] = foreign.encode(plane if more else plane[:20], style)
    _assert_damaged(foreign.write(keys, tmp_path), tmp_path)


@pytest.mark.parametrize("nbytes", [0, 10, 1000, -40, -22, -1])
def test_a_zip_cut_off(nbytes: int, tmp_path: Path) -> None:
    archive = foreign.write(foreign.byte_exact(foreign.original(BUSY)), tmp_path)
    archive.write_bytes(archive.read_bytes()[:nbytes])
    _assert_refused(archive, tmp_path)


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.zarr.zip"
    archive.write_bytes(tiffs.ODD["text"]())
    _assert_refused(archive, tmp_path)


def test_swapped_planes(tmp_path: Path) -> None:
    keys = foreign.byte_exact(foreign.original(BUSY))
    keys["0/1/0/0"], keys["0/2/0/0"] = keys["0/2/0/0"], keys["0/1/0/0"]
    _assert_damaged(foreign.write(keys, tmp_path), tmp_path)


# --- series -----------------------------------------------------------------------------------


def _nested_with(bundle: Keys) -> Keys:
    return {**CASES["nested"].keys, "m0.zarr.zip": foreign.zipped(bundle)}


def _without_first_bundle() -> Keys:
    keys = dict(CASES["nested"].keys)
    del keys["m0.zarr.zip"]
    return keys


NESTED: Mapping[str, Callable[[], Keys]] = {
    "bundle-missing": _without_first_bundle,
    "bundle-of-another": lambda: _nested_with(foreign.bundles()["day 1/s02.tif"][1]),
    "bundle-of-same-size": lambda: _nested_with(
        foreign.verbatim(bytes(len(foreign.bundles()["s01.tif"][0])), name="s01.tif")
    ),
    "bundle-is-a-series": lambda: _nested_with(CASES["consolidated-zip"].keys),
    "bundle-with-unsafe-name": lambda: _nested_with(
        foreign.byte_exact(foreign.original(BUSY), name="../../s01.tif")
    ),
    "bundle-of-unknown-format": lambda: _nested_with(
        _changed(foreign.bundles()["s01.tif"][1], _of_all(format=2))
    ),
    "bundle-not-a-zip": lambda: {**CASES["nested"].keys, "m0.zarr.zip": b"PK"},
    "bundle-not-named": lambda: _changed(CASES["nested"].keys, _first_member(subarchive="")),
    "size-other": lambda: _changed(CASES["nested"].keys, _first_member(original_size=1)),
    "sha256-other": lambda: _changed(CASES["nested"].keys, _first_member(original_sha256="0" * 64)),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_damaged_member_of_a_nested_series(name: str, tmp_path: Path) -> None:
    _assert_damaged_member(foreign.write(NESTED[name](), tmp_path, "folder"), tmp_path)


def test_a_nested_series_within_a_zip_is_damaged(tmp_path: Path) -> None:
    """Spec section 3: a nested series is always a folder."""
    archive = foreign.write(CASES["nested"].keys, tmp_path, "zip")
    _assert_damaged_member(archive, tmp_path)


CONSOLIDATED: Mapping[str, Change] = {
    "husk-missing": _first_member(husk_array="husk_9"),
    "husk-not-named": _first_member(husk_array=""),
    "husk-of-another": _first_member(husk_array="husk_1"),
    "husk-outside": _first_member(husk_array="../husk"),
    "husk-size": _first_member(husk_raw_size=1),
    "size": _first_member(original_size=1),
    "no-pages": _first_member(pages=[]),
    "sha256": _first_member(original_sha256="0" * 64),
    "byteorder": _first_member(byteorder=">"),
    "index-past-end": lambda document: document["members"][0]["pages"][0].update(index=12),
}


@pytest.mark.parametrize("name", CONSOLIDATED)
def test_a_damaged_member_of_a_consolidated_series(name: str, tmp_path: Path) -> None:
    keys = _changed(CASES["consolidated-zip"].keys, CONSOLIDATED[name])
    _assert_damaged_member(foreign.write(keys, tmp_path), tmp_path)


def test_other_members_are_still_restored(tmp_path: Path) -> None:
    case = CASES["nested"]
    archive = foreign.write(_without_first_bundle(), tmp_path, "folder")
    restore(archive, tmp_path / "out", members=["day 1/*"])
    del (expected := dict(case.originals))["s01.tif"]
    assert _files(tmp_path / "out") == expected
    assert [each.problem is None for each in verify(archive)] == [False, True, True, True]
