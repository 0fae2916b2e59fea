"""One suite that both containers pass; then what only a zip has to do."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import struct
import subprocess
import tempfile
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
import zarr.storage
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from decant_batch.archive.container import (
    Container,
    ForeignZip,
    ZipReader,
    ZipWriter,
    canonical_uri,
    create,
    directory,
    in_reading_order,
    open_container,
)
from decant_batch.archive.container.directory import Directory
from decant_batch.archive.model import ContainerKind
from decant_batch.errors import ArchiveDamaged, NameTaken

KINDS: tuple[ContainerKind, ...] = ("zip", "folder")
VALUES = {
    "0/0/0/0": bytes(range(256)) * 9,
    ".zgroup": b'{"zarr_format":2}',
    "0/.zarray": b"{}",
    "husk/0": b"",
    ".decant/manifest.json": b"{}",
    "0/0/1/0": b"x",
    ".zattrs": b"{}",
}


def write(path: Path, kind: ContainerKind, values: dict[str, bytes]) -> None:
    with create(path, kind) as container:
        for key, value in values.items():
            container.set(key, value)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> ContainerKind:
    found: ContainerKind = request.param
    return found


@pytest.fixture
def made(tmp_path: Path, kind: ContainerKind) -> Path:
    path = tmp_path / "a b.zarr.zip"
    write(path, kind, VALUES)
    return path


def test_gives_back_what_was_set(made: Path, kind: ContainerKind) -> None:
    with open_container(made) as container:
        assert container.kind == kind
        assert {key: container.get(key) for key in container.list()} == VALUES


def test_missing_key_is_a_key_error(made: Path) -> None:
    with open_container(made) as container:
        for key in ("0/0/0/9", "0", "0/", "", "../x", "/etc/passwd"):
            with pytest.raises(KeyError):
                container.get(key)


def test_each_key_is_set_once(tmp_path: Path, kind: ContainerKind) -> None:
    with pytest.raises(ValueError, match="a/b: written before"):
        write_all(tmp_path / "x", kind, [("a/b", b"1"), ("c", b""), ("a/b", b"2")])
    assert list(tmp_path.iterdir()) == []


def write_all(path: Path, kind: ContainerKind, pairs: list[tuple[str, bytes]]) -> None:
    with create(path, kind) as container:
        for key, value in pairs:
            container.set(key, value)


def test_what_is_being_written_can_be_read(tmp_path: Path, kind: ContainerKind) -> None:
    with create(tmp_path / "x", kind) as container:
        container.set("a/b", b"1")
        assert (container.get("a/b"), list(container.list())) == (b"1", ["a/b"])
        container.set("c", b"2")
        assert (container.get("a/b"), container.get("c")) == (b"1", b"2")


def test_a_value_comes_in_parts(tmp_path: Path, kind: ContainerKind) -> None:
    value = os.urandom((2 << 20) + 5)
    write_all(tmp_path / "x", kind, [("empty", b""), ("k", value)])
    with open_container(tmp_path / "x") as container:
        assert b"".join(container.get_parts("k")) == value
        assert max(map(len, container.get_parts("k"))) == 256 << 10
        assert b"".join(container.get_parts("empty")) == b""
        with pytest.raises(KeyError):
            list(container.get_parts("none"))


def test_what_is_open_for_reading_is_not_written(made: Path) -> None:
    with open_container(made) as container, pytest.raises(ValueError, match="reading"):
        container.set("new", b"")


def test_lists_by_prefix_and_by_folder(made: Path) -> None:
    with open_container(made) as container:
        assert sorted(container.list()) == sorted(VALUES)
        assert sorted(container.list_prefix("0/0")) == ["0/0/0/0", "0/0/1/0"]
        assert sorted(container.list_prefix("0")) == ["0/.zarray", "0/0/0/0", "0/0/1/0"]
        assert list(container.list_dir("")) == [".decant", ".zattrs", ".zgroup", "0", "husk"]
        assert list(container.list_dir("0")) == list(container.list_dir("0/")) == [".zarray", "0"]
        assert list(container.list_dir("nothing")) == []


def test_metadata_comes_first_breadth_first(made: Path) -> None:
    with open_container(made) as container:
        assert list(container.list())[:4] == [
            ".zattrs",
            ".zgroup",
            ".decant/manifest.json",
            "0/.zarray",
        ]


def test_an_existing_name_is_never_overwritten(tmp_path: Path, kind: ContainerKind) -> None:
    taken = tmp_path / "x"
    taken.write_bytes(b"foreign")
    with pytest.raises(NameTaken, match="x"):
        create(taken, kind)
    assert taken.read_bytes() == b"foreign"


def test_an_error_leaves_nothing_behind(tmp_path: Path, kind: ContainerKind) -> None:
    def fail(container: Container) -> None:
        with container:
            container.set("a/b", b"1")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        fail(create(tmp_path / "x", kind))
    assert list(tmp_path.iterdir()) == []


def test_many_threads_read_at_once(tmp_path: Path, kind: ContainerKind) -> None:
    values = {f"0/{i}": bytes([i]) * (200_000 + i) for i in range(64)}
    write(tmp_path / "a", kind, values)
    with open_container(tmp_path / "a") as container, ThreadPoolExecutor(8) as pool:
        keys = list(values) * 8
        assert list(pool.map(container.get, keys)) == [values[key] for key in keys]


def test_size_is_that_on_the_disk(made: Path, kind: ContainerKind) -> None:
    files = [made] if kind == "zip" else [file for file in made.rglob("*") if file.is_file()]
    with open_container(made) as container:
        assert container.nbytes() == sum(file.stat().st_size for file in files)
        container.drop_cache()


def test_zarr_lists_and_reads_the_same(made: Path, kind: ContainerKind) -> None:
    make = zarr.storage.ZipStore if kind == "zip" else zarr.storage.LocalStore

    async def everything() -> dict[str, bytes]:
        found, store = {}, await make.open(made, read_only=True)
        async for key in store.list():
            value = await store.get(key, default_buffer_prototype())
            found[key] = value.to_bytes()
        store.close()
        return found

    assert sync(everything()) == VALUES


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (PurePosixPath("/my data.zip"), "file:///my%20data.zip"),
        (PurePosixPath("/scan/Zähler µm.zarr"), "file:///scan/Z%C3%A4hler%20%C2%B5m.zarr"),
        (PurePosixPath("/a#b?c%41"), "file:///a%23b%3Fc%2541"),
        (PureWindowsPath(r"c:\my data.zip"), "file:///c:/my%20data.zip"),
        (PureWindowsPath(r"D:\x\Zähler.zip"), "file:///d:/x/Z%C3%A4hler.zip"),
        (PureWindowsPath(r"\\host\share\a b.zip"), "file://host/share/a%20b.zip"),
    ],
)
def test_canonical_uri(path: PurePosixPath | PureWindowsPath, uri: str) -> None:
    assert canonical_uri(path) == uri


def test_uri_of_a_container_is_that_of_its_absolute_path(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.parent)
    with open_container(Path(made.name)) as container:
        assert container.uri == made.as_uri()


def test_unzip_and_zip_turn_one_form_into_the_other(tmp_path: Path) -> None:
    if not (shutil.which("unzip") and shutil.which("zip")):
        pytest.skip("needs the programs zip and unzip")
    write(tmp_path / "a.zip", "zip", VALUES)
    folder = tmp_path / "a"
    subprocess.run(["unzip", "-q", tmp_path / "a.zip", "-d", folder], check=True)
    with open_container(folder) as container:
        assert {key: container.get(key) for key in container.list()} == VALUES
    subprocess.run(["zip", "-q", "-0", "-r", tmp_path / "b.zip", "."], cwd=folder, check=True)
    with open_container(tmp_path / "b.zip") as container:
        assert {key: container.get(key) for key in container.list()} == VALUES


# --- zip only ---------------------------------------------------------------------------------


def test_entries_are_stored_zip64_and_undated(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    write(path, "zip", VALUES)
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        for info in file.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert struct.unpack("<H", info.extra[:2]) == (1,), "a ZIP64 record"
    data = path.read_bytes()
    assert data.count(b"PK\x06\x06") == data.count(b"PK\x06\x07") == 1


def test_same_values_give_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / name, "zip", VALUES)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_zip_larger_than_4_gib_is_read(tmp_path: Path) -> None:
    """Offsets beyond 32 bits: the first entry is a hole in a sparse file, so this costs nothing."""
    path = tmp_path / "large.zip"
    container = create(path, "zip")
    container.set("first", b"1")
    container._file.seek(5 << 30)  # type: ignore[attr-defined]  # as if 5 GiB had been written
    container._offset = 5 << 30  # type: ignore[attr-defined]
    container.set("last", b"2")
    container.close()
    with open_container(path) as reader:
        assert (reader.get("first"), reader.get("last")) == (b"1", b"2")


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_is_found(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.zip"
    write(path, "zip", {"k": os.urandom(500)})
    data = bytearray(path.read_bytes())
    at = 60 + random.Random(seed).randrange(400)
    data[at] ^= 1 << (seed % 8)
    path.write_bytes(data)
    with open_container(path) as container, pytest.raises(ArchiveDamaged, match=r"a\.zip"):
        container.get("k")


@pytest.mark.parametrize("keep", [0, 1, 21, 200, -1])
def test_a_truncated_zip_is_damaged_not_empty(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.zip"
    write(path, "zip", {"k": bytes(300)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArchiveDamaged, match=r"a\.zip"):
        open_container(path)


def test_reading_order_keeps_the_order_of_chunks() -> None:
    keys = ["0/0", "husk/0", "0/1", "b/.zarray", ".zattrs", "a/c/.zarray", ".zgroup"]
    assert in_reading_order(keys) == [
        ".zattrs", ".zgroup", "b/.zarray", "a/c/.zarray", "0/0", "husk/0", "0/1",
    ]  # fmt: skip


# --- zips of our form, and all others ----------------------------------------------------------


def rewritten(path: Path, *, compression: int = zipfile.ZIP_STORED) -> Path:
    """The same entries in a zip that ``zipfile`` writes."""
    other = path.with_suffix(".other")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return other


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_of_another_form_gives_the_same(tmp_path: Path, compression: int) -> None:
    write(tmp_path / "a", "zip", VALUES)
    other = rewritten(tmp_path / "a", compression=compression)
    with open_container(tmp_path / "a") as ours, open_container(other) as theirs:
        assert (type(ours), type(theirs)) == (ZipReader, ForeignZip)
        assert {key: theirs.get(key) for key in theirs.list()} == VALUES
        assert {key: b"".join(theirs.get_parts(key)) for key in ours.list()} == VALUES


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
@settings(max_examples=400, deadline=None)
def test_any_flipped_bit_is_seen_or_does_not_matter(at: int, bit: int) -> None:
    """Wherever it is: a value is right, or missing, or damaged; it is never another one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.zip")
        write(path, "zip", VALUES)
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= 1 << bit
        path.write_bytes(data)
        try:
            with open_container(path) as container:
                for key, value in VALUES.items():
                    with contextlib.suppress(KeyError, ArchiveDamaged):
                        assert container.get(key) == value
        except ArchiveDamaged:
            pass


def test_a_key_that_is_there_twice_is_left_to_zipfile(tmp_path: Path) -> None:
    """Two records of one key, else of our form: the last one counts, as for other readers."""
    path = tmp_path / "a.zip"
    container = ZipWriter(path)
    container.set("k", b"1")
    container.set("k", b"2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Directory, "check", lambda _self: None)
        container.close()
    with open_container(path) as reader:
        assert (type(reader), reader.get("k")) == (ForeignZip, b"2")


def test_keys_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "hash", lambda key: len(key) % 2, raising=False)
    write(tmp_path / "a", "zip", VALUES)
    with open_container(tmp_path / "a") as container:
        assert isinstance(container, ZipReader)
        assert {key: container.get(key) for key in VALUES} == VALUES
        with pytest.raises(KeyError):
            container.get("none")
    with pytest.raises(ValueError, match="b: written before"):
        write_all(tmp_path / "b", "zip", [("b", b""), ("x", b""), ("y", b""), ("b", b"")])


def test_a_file_that_became_shorter_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    write(path, "zip", {"k": bytes(3 << 20)})
    with open_container(path) as container:
        os.truncate(path, 1 << 20)
        with pytest.raises(ArchiveDamaged, match="entry k"):
            container.get("k")
        with pytest.raises(ArchiveDamaged, match="entry k"):
            list(container.get_parts("k"))


def test_a_key_costs_little_memory(tmp_path: Path) -> None:
    """Some 110 bytes each in the writer, 16 in the reader: not an object."""
    count = 20_000
    tracemalloc.start()
    try:
        with create(tmp_path / "a", "zip") as container:
            for i in range(count):
                container.set(f"husk_{i}/0", b"")
            held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with open_container(tmp_path / "a") as container:
            container.get("husk_7/0")
            peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert held < 150 * count
    assert peak < 100 * count + (1 << 20)
