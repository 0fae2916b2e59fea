"""What gets a name in the destination, and what never does: bytes, foreign things, full disks.

That nothing temporary is left and no file is open, whatever went wrong, is looked at after each
test by conftest.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from decant_batch.archive import codecs, container, pack, planes, restore
from decant_batch.archive import verify as verify_archive
from decant_batch.archive.model import ContainerKind, Mode, Reason, Recipe, Stamp, Verified
from decant_batch.batch import publish
from decant_batch.batch.model import Job, Outcome, Roots, Source
from decant_batch.errors import ArchiveDamaged, NameTaken, SourceChanged
from tests import tiffs
from tests.recover import recover
from tests.tiffs import TiffSpec

RELPATH = "sub/a.tif"
TEMPORARY = "sub/.decant-1-0.partial"
# Random, so that a chunk takes most of the archive and damage in the middle hits pixels.
SPEC = TiffSpec(pages=3, shape=(64, 48), pixels="random", gap=17, trailing=30)
SUFFIXES: dict[ContainerKind, str] = {"zip": ".zarr.zip", "folder": ".zarr"}
MTIME_NS = 1_700_000_000_123_456_789


@pytest.fixture(params=["zip", "folder"])
def kind(request: pytest.FixtureRequest) -> ContainerKind:
    return request.param  # type: ignore[no-any-return]  # one of the two above


@dataclass(frozen=True, kw_only=True)
class Case:
    """A share with sources, a destination, and jobs between them."""

    folder: Path
    kind: ContainerKind

    @property
    def share(self) -> Path:
        return self.folder / "share"

    @property
    def destination(self) -> Path:
        return self.folder / "archive"

    @property
    def roots(self) -> Roots:
        return Roots(source=str(self.share), destination=str(self.destination))

    def write(self, data: bytes, relpath: str = RELPATH, mtime_ns: int = MTIME_NS) -> Source:
        path = self.share / relpath
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o640)
        os.utime(path, ns=(mtime_ns, mtime_ns))
        return Source(relpath=relpath, size=len(data), mtime_ns=mtime_ns, mode=0o640)

    def archive(self, relpath: str = RELPATH, version: int = 1) -> str:
        return relpath + ("" if version == 1 else f".v{version}") + SUFFIXES[self.kind]

    def final(self, version: int = 1) -> Path:
        return self.destination / self.archive(version=version)

    def job(self, source: Source, mode: Mode = "byte-exact", reason: Reason | None = None) -> Job:
        return Job(
            source=source,
            archive=self.archive(source.relpath),
            further=tuple(self.archive(source.relpath, version) for version in (2, 3)),
            mode=mode,
            reason=reason,
            detail="" if reason is None else "as planned",
            recipe=Recipe(container=self.kind, threads=2),
            projected_bytes=1 << 30,
        )

    def make(self, job: Job, report: Callable[[int], None] = lambda _nbytes: None) -> Outcome:
        return publish.make(self.roots, job, TEMPORARY, report)


@pytest.fixture
def case(tmp_path: Path, kind: ContainerKind) -> Case:
    made = Case(folder=tmp_path, kind=kind)
    made.destination.mkdir()
    return made


def _temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".partial")]


def standing(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All that is below a folder: kind, permissions, time, and bytes or where a link leads."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        content: object = None
        if stat.S_ISLNK(seen.st_mode):
            content = path.readlink()
        elif stat.S_ISREG(seen.st_mode):
            content = path.read_bytes()
        time_ns = None if stat.S_ISDIR(seen.st_mode) else seen.st_mtime_ns
        found[str(path.relative_to(folder))] = (seen.st_mode, seen.st_ino, time_ns, content)
    return found


def nothing_published(case: Case) -> bool:
    return all(entry[0] and stat.S_ISDIR(entry[0]) for entry in standing(case.destination).values())


def holds(archive: Path, data: bytes) -> None:
    """Assert that an archive gives ``data`` back: by verify, by restore and by other code."""
    assert [each.problem for each in verify_archive(archive)] == [None]
    assert list(recover(archive).values()) == [data]


# --- archived ---------------------------------------------------------------------------------


def test_a_source_is_archived(case: Case) -> None:
    data = tiffs.build(SPEC)
    source = case.write(data)
    read: list[int] = []
    outcome = case.make(case.job(source), read.append)
    assert (outcome.source, outcome.state, outcome.archive) == (source, "archived", case.archive())
    assert (outcome.mode, outcome.reason, outcome.adopted) == ("byte-exact", None, False)
    assert outcome.failure is None
    assert sum(read) == len(data)
    holds(case.final(), data)
    (restored,) = restore(case.final(), case.folder / "back")
    assert restored == case.folder / "back" / RELPATH
    assert restored.read_bytes() == data
    assert (restored.stat().st_mtime_ns, restored.stat().st_mode & 0o7777) == (MTIME_NS, 0o640)
    with container.open_container(case.final()) as opened:
        assert outcome.archive_nbytes == opened.nbytes()
    assert set(os.listdir(case.destination / "sub")) == {case.final().name}


def test_the_source_is_only_read(case: Case) -> None:
    source = case.write(tiffs.build(SPEC))
    before = standing(case.share)
    case.make(case.job(source))
    assert standing(case.share) == before


@pytest.mark.parametrize("name", sorted(tiffs.ODD))
def test_odd_sources_are_archived_too(case: Case, name: str) -> None:
    data = tiffs.ODD[name]()
    outcome = case.make(case.job(case.write(data), mode="verbatim", reason="unreadable-tiff"))
    assert outcome.state == "archived"
    holds(case.final(), data)


def test_what_does_not_fit_into_memory_is_verbatim_as_planned(case: Case) -> None:
    data = tiffs.build(SPEC)
    outcome = case.make(case.job(case.write(data), mode="verbatim", reason="over-memory"))
    assert (outcome.mode, outcome.reason, outcome.detail) == (
        "verbatim",
        "over-memory",
        "as planned",
    )
    holds(case.final(), data)


def test_a_leftover_at_the_temporary_name_is_replaced(case: Case) -> None:
    leftover = case.destination / TEMPORARY
    leftover.mkdir(parents=True)
    (leftover / "0").write_bytes(b"half")
    data = tiffs.build(SPEC)
    assert case.make(case.job(case.write(data))).state == "archived"
    holds(case.final(), data)
    assert not (case.final() / "0").is_file()


def test_contents_are_on_stable_storage_before_the_name(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves a name with nothing behind it."""
    events: list[tuple[str, str]] = []
    sync, rename, link = os.fsync, Path.rename, Path.hardlink_to

    def fsync(handle: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    def renamed(self: Path, target: Path) -> Path:
        events.append(("name", str(target)))
        return rename(self, target)

    def linked(self: Path, target: Path) -> None:
        events.append(("name", str(self)))
        link(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(Path, "hardlink_to", linked)
    case.make(case.job(case.write(tiffs.build(SPEC))))

    named = events.index(("name", str(case.final())))
    partial = case.destination / TEMPORARY
    synced = {path for what, path in events[:named] if what == "sync"}
    files = [case.final(), *case.final().rglob("*")]
    inside = {str(partial / file.relative_to(case.final())) for file in files}
    assert inside <= synced
    assert ("sync", str(case.final().parent)) in events[named:]
    assert ("sync", str(case.destination)) in events, "the new folder's own name"


# --- the source moves -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["byte-exact", "verbatim"])
@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "emptied"])
def test_a_source_that_changed_after_the_walk(case: Case, mode: Mode, change: str) -> None:
    data = tiffs.build(SPEC)
    source = case.write(data)
    path = case.share / RELPATH
    _change(path, data, change)
    with pytest.raises(SourceChanged, match=str(path)):
        case.make(case.job(source, mode, None if mode == "byte-exact" else "over-memory"))
    assert nothing_published(case)


def test_a_source_that_is_a_folder_now(case: Case) -> None:
    source = case.write(tiffs.build(SPEC))
    (case.share / RELPATH).unlink()
    (case.share / RELPATH).mkdir()
    with pytest.raises(SourceChanged):
        case.make(case.job(source))
    assert nothing_published(case)


def _change(path: Path, data: bytes, change: str) -> None:
    """Change a source as those who write it do; its time moves too, but for ``replaced``."""
    if change == "longer":
        with path.open("ab") as file:
            file.write(b"more")
    elif change == "shorter":
        os.truncate(path, len(data) - 40)
    elif change == "emptied":
        path.write_bytes(b"")
    elif change == "replaced":
        other = path.with_name("other")
        other.write_bytes(data[::-1])
        os.utime(other, ns=(MTIME_NS + 1, MTIME_NS + 1))
        other.replace(path)
    else:
        os.utime(path, ns=(MTIME_NS + 1, MTIME_NS + 1))


@pytest.mark.parametrize("mode", ["byte-exact", "verbatim"])
@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "replaced"])
def test_a_source_that_changes_while_it_is_read(case: Case, mode: Mode, change: str) -> None:
    data = tiffs.build(replace(SPEC, shape=(700, 512)))  # more than one block of reading
    source = case.write(data)
    left = [data]

    def report(_nbytes: int) -> None:
        if left:
            _change(case.share / RELPATH, left.pop(), change)

    with pytest.raises(SourceChanged):
        case.make(case.job(source, mode, None if mode == "byte-exact" else "over-memory"), report)
    assert not left
    assert nothing_published(case)


@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "replaced"])
def test_a_source_that_changes_while_its_archive_is_verified(
    case: Case, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tiffs.build(SPEC)
    source = case.write(data)

    def verify(archive: Path, **options: Any) -> list[Verified]:
        _change(case.share / RELPATH, data, change)
        return verify_archive(archive, **options)

    monkeypatch.setattr(publish, "verify", verify)
    with pytest.raises(SourceChanged):
        case.make(case.job(source))
    assert nothing_published(case)


def test_a_source_that_is_gone_publishes_nothing(case: Case) -> None:
    source = case.write(tiffs.build(SPEC))
    (case.share / RELPATH).unlink()
    with pytest.raises(FileNotFoundError):
        case.make(case.job(source))
    assert nothing_published(case)


# --- something stands at the name -------------------------------------------------------------


def _foreign_file(path: Path) -> None:
    path.write_bytes(b"someone's own")


def _foreign_empty_file(path: Path) -> None:
    path.touch()


def _foreign_folder(path: Path) -> None:
    path.mkdir()
    (path / "letter.txt").write_bytes(b"someone's own")


def _foreign_empty_folder(path: Path) -> None:
    path.mkdir()


def _foreign_symlink(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(b"someone's own")
    path.symlink_to("elsewhere")


def _dangling_symlink(path: Path) -> None:
    path.symlink_to("not-there")


def _looping_symlink(path: Path) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


FOREIGN = (
    *(_foreign_file, _foreign_empty_file, _foreign_folder, _foreign_empty_folder),
    *(_foreign_symlink, _dangling_symlink, _looping_symlink),
)


@pytest.mark.parametrize("put", FOREIGN)
def test_a_foreign_thing_at_the_name_is_never_touched(
    case: Case, put: Callable[[Path], None]
) -> None:
    source = case.write(tiffs.build(SPEC))
    case.final().parent.mkdir()
    put(case.final())
    before = standing(case.destination)
    with pytest.raises(NameTaken) as refusal:
        case.make(case.job(source))
    assert str(case.final()) in str(refusal.value)
    assert "move it away" in str(refusal.value)
    assert standing(case.destination) == before


@pytest.mark.timeout(10, method="signal")  # a pipe that is opened blocks for ever
def test_a_pipe_at_the_name_does_not_hold_the_worker(case: Case) -> None:
    source = case.write(tiffs.build(SPEC))
    case.final().parent.mkdir()
    _pipe(case.final())
    with pytest.raises(NameTaken):
        case.make(case.job(source))


@pytest.mark.parametrize("put", FOREIGN)
def test_a_foreign_thing_that_appears_while_packing_is_never_touched(
    case: Case, put: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[dict[str, Any]] = []

    def verify(archive: Path, **options: Any) -> list[Verified]:
        put(case.final())
        before.append(_foreign(case))
        return verify_archive(archive, **options)

    monkeypatch.setattr(publish, "verify", verify)
    with pytest.raises(NameTaken):
        case.make(case.job(case.write(tiffs.build(SPEC))))
    assert _foreign(case) == before[0]


def _foreign(case: Case) -> dict[str, Any]:
    return {
        name: seen for name, seen in standing(case.destination).items() if ".partial" not in name
    }


def test_a_foreign_thing_that_appears_last_of_all_is_never_replaced(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look and the renaming; an empty folder alone may be replaced."""
    case.final().parent.mkdir()
    put = _foreign_file if case.kind == "zip" else _foreign_folder
    put(case.final())
    before = standing(case.destination)
    monkeypatch.setattr(os.path, "lexists", lambda _path: False)
    with pytest.raises((NameTaken, OSError)):
        case.make(case.job(case.write(tiffs.build(SPEC))))
    assert standing(case.destination) == before


def _made_before(case: Case, data: bytes, relpath: str = RELPATH) -> Path:
    """An archive of ``data`` at the name of the source, as an earlier run left it."""
    case.final().parent.mkdir(exist_ok=True)
    elsewhere = case.folder / "elsewhere" / Path(relpath).name
    elsewhere.parent.mkdir(exist_ok=True)
    elsewhere.write_bytes(data)
    stamp = Stamp(relpath=relpath, mtime_ns=MTIME_NS, mode=0o640)
    pack(elsewhere, case.final(), recipe=Recipe(container=case.kind), stamp=stamp)
    return case.final()


def test_an_own_archive_of_this_content_is_adopted_as_it_is(case: Case) -> None:
    data = tiffs.build(SPEC)
    source = case.write(data)
    first = case.make(case.job(source))
    before = standing(case.destination)
    outcome = case.make(case.job(source))
    assert outcome == replace(first, adopted=True)
    assert standing(case.destination) == before


def test_a_verbatim_archive_is_adopted_with_its_reason(case: Case) -> None:
    source = case.write(tiffs.compressed())
    job = case.job(source, "verbatim", "compressed")
    first = case.make(job)
    outcome = case.make(job)
    assert (first.mode, first.reason, first.adopted) == ("verbatim", "compressed", False)
    assert (outcome.mode, outcome.reason, outcome.adopted) == ("verbatim", "compressed", True)


def test_an_archive_that_records_no_path_is_adopted(case: Case) -> None:
    data = tiffs.build(SPEC)
    source = case.write(data)
    case.final().parent.mkdir()
    pack(case.share / RELPATH, case.final(), recipe=Recipe(container=case.kind))
    assert case.make(case.job(source)).adopted


def test_other_content_of_the_source_gives_the_next_version(case: Case) -> None:
    old, data = tiffs.build(SPEC), tiffs.build(replace(SPEC, seed=1))
    _made_before(case, old)
    before = standing(case.destination)
    outcome = case.make(case.job(case.write(data)))
    assert (outcome.state, outcome.archive, outcome.adopted) == (
        "archived",
        case.archive(version=2),
        False,
    )
    holds(case.final(), old)
    holds(case.final(2), data)
    after = standing(case.destination)
    assert {name: after[name] for name in before} == before


def test_of_several_versions_the_one_with_this_content_is_adopted(case: Case) -> None:
    contents = [tiffs.build(replace(SPEC, seed=seed)) for seed in range(3)]
    for data in contents:
        case.make(case.job(case.write(data)))
    before = standing(case.destination)
    assert len([name for name in before if name.endswith(SUFFIXES[case.kind])]) == 3
    for version, data in enumerate(contents, start=1):
        outcome = case.make(case.job(case.write(data)))
        assert (outcome.archive, outcome.adopted) == (case.archive(version=version), True)
    assert standing(case.destination) == before


def test_where_all_names_are_taken_by_other_versions_nothing_is_made(case: Case) -> None:
    for seed in range(3):
        case.make(case.job(case.write(tiffs.build(replace(SPEC, seed=seed)))))
    before = standing(case.destination)
    with pytest.raises(NameTaken):
        case.make(case.job(case.write(tiffs.build(replace(SPEC, seed=3)))))
    assert standing(case.destination) == before


def test_an_archive_of_another_source_is_never_touched(case: Case) -> None:
    data = tiffs.build(SPEC)
    _made_before(case, data, relpath="other/b.tif")
    before = standing(case.destination)
    outcome = case.make(case.job(case.write(data)))
    assert outcome.state == "archived"
    assert outcome.archive != case.job(case.write(data)).archive, "a further name, not that one"
    after = standing(case.destination)
    assert {name: after[name] for name in before} == before


def _pixels(archive: Path) -> list[Path]:
    """Files of a folder's array 0, or the zip itself."""
    if archive.is_file():
        return [archive]
    return sorted(path for path in (archive / "0").rglob("*") if path.name[0] != ".")[-3:]


def _flip_a_bit(archive: Path) -> None:
    file = next(path for path in _pixels(archive) if path.is_file())
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def _cut_off(archive: Path) -> None:
    file = next(path for path in _pixels(archive) if path.is_file())
    os.truncate(file, file.stat().st_size // 2)


def _lose_the_manifest(archive: Path) -> None:
    if archive.is_dir():
        (archive / ".decant/manifest.json").unlink()
    else:
        archive.write_bytes(archive.read_bytes().replace(b".decant/manifest", b".decanT/manifest"))


@pytest.mark.parametrize("damage", [_flip_a_bit, _cut_off, _lose_the_manifest])
def test_a_damaged_archive_of_the_source_is_neither_believed_nor_touched(
    case: Case, damage: Callable[[Path], None]
) -> None:
    data = tiffs.build(SPEC)
    damage(_made_before(case, data))
    before = standing(case.destination)
    with pytest.raises(NameTaken, match="move it away"):
        case.make(case.job(case.write(data)))
    assert standing(case.destination) == before


def test_pages_that_changed_places_are_damage_too(tmp_path: Path) -> None:
    """Every file of the folder is whole, and the archive still does not give the source back."""
    case = Case(folder=tmp_path, kind="folder")
    case.destination.mkdir()
    data = tiffs.build(SPEC)
    archive = _made_before(case, data)
    first, second, *_ = sorted(path for path in archive.glob("0/[0-9]*") if path.is_dir())
    aside = tmp_path / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    with pytest.raises(NameTaken, match="damaged"):
        case.make(case.job(case.write(data)))


def test_a_source_that_changes_while_its_archive_is_adopted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tiffs.build(SPEC)
    source = case.write(data)
    case.make(case.job(source))
    before = standing(case.destination)
    digest = publish.sha256_of

    def sha256(path: Path) -> str:
        found = digest(path)
        _change(path, data, "longer")
        return found

    monkeypatch.setattr(publish, "sha256_of", sha256)
    with pytest.raises(SourceChanged):
        case.make(case.job(source))
    assert standing(case.destination) == before


def test_nothing_is_written_into_a_published_archive(tmp_path: Path) -> None:
    """A source below a folder ``b.tif.zarr`` beside a source ``b.tif``: their names overlap."""
    case = Case(folder=tmp_path, kind="folder")
    case.destination.mkdir()
    outer = case.write(tiffs.build(SPEC), "b.tif")
    publish.make(case.roots, case.job(outer), ".decant-1-0.partial", lambda _nbytes: None)
    before = standing(case.destination / "b.tif.zarr")
    inner = case.write(tiffs.build(SPEC), "b.tif.zarr/x.tif")
    job = case.job(inner)
    with suppress(NameTaken):
        publish.make(case.roots, job, "b.tif.zarr/.decant-1-0.partial", lambda _nbytes: None)
    assert standing(case.destination / "b.tif.zarr") == before


# --- what does not rebuild --------------------------------------------------------------------


def _problems(*problems: str | None) -> Callable[..., list[Verified]]:
    """A ``verify`` that finds these problems, one a call, and then works."""
    left = list(problems)

    def verify(archive: Path, **options: Any) -> list[Verified]:
        proved = verify_archive(archive, **options)
        return [replace(each, problem=left.pop(0) if left else None) for each in proved]

    return verify


def test_byte_exact_that_does_not_rebuild_goes_verbatim(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tiffs.build(SPEC)
    monkeypatch.setattr(publish, "verify", _problems("rebuilt with another sha256"))
    outcome = case.make(case.job(case.write(data)))
    assert (outcome.state, outcome.mode, outcome.reason) == (
        "archived",
        "verbatim",
        "rebuild-differs",
    )
    assert "rebuilt with another sha256" in outcome.detail
    holds(case.final(), data)
    with container.open_container(case.final()) as opened:
        assert not opened.list_prefix("0/"), "nothing of the first try is left"


def test_byte_exact_that_cannot_even_be_opened_goes_verbatim(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, left = tiffs.build(SPEC), ["once"]

    def verify(archive: Path, **options: Any) -> list[Verified]:
        if left:
            raise ArchiveDamaged(f"{archive}: no manifest {left.pop()}")
        return verify_archive(archive, **options)

    monkeypatch.setattr(publish, "verify", verify)
    outcome = case.make(case.job(case.write(data)))
    assert (outcome.mode, outcome.reason) == ("verbatim", "rebuild-differs")
    holds(case.final(), data)


def test_pixels_that_are_packed_wrong_are_found_and_go_verbatim(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours in the middle of packing, found by no mock but by what is on the disk."""
    deserialize = planes.deserialize

    def faulty(raw: Any, *rest: Any) -> Any:
        raw[len(raw) // 2] ^= 0x10
        return deserialize(raw, *rest)

    monkeypatch.setattr(planes, "deserialize", faulty)
    data = tiffs.build(SPEC)
    outcome = case.make(case.job(case.write(data)))
    assert (outcome.mode, outcome.reason) == ("verbatim", "rebuild-differs")
    holds(case.final(), data)


def test_verbatim_that_does_not_rebuild_is_not_published(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "verify", _problems("first", "second"))
    with pytest.raises(ArchiveDamaged, match="second") as refusal:
        case.make(case.job(case.write(tiffs.build(SPEC))))
    assert str(case.share / RELPATH) in str(refusal.value)
    assert nothing_published(case)


def test_planned_verbatim_that_does_not_rebuild_is_not_tried_twice(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "verify", _problems("first"))
    with pytest.raises(ArchiveDamaged, match="first"):
        case.make(case.job(case.write(tiffs.compressed()), "verbatim", "compressed"))
    assert nothing_published(case)


def test_a_disk_that_keeps_other_bytes_than_it_was_given_publishes_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every chunk is changed on its way to the disk: neither mode gives the source back."""
    encode = codecs.encode

    def faulty(*args: Any) -> bytes:
        encoded = bytearray(encode(*args))
        encoded[-1] ^= 1
        return bytes(encoded)

    monkeypatch.setattr(codecs, "encode", faulty)
    with pytest.raises(ArchiveDamaged):
        case.make(case.job(case.write(tiffs.build(SPEC))))
    assert nothing_published(case)


def test_an_archive_that_holds_another_file_is_not_published(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(archive: Path, **options: Any) -> list[Verified]:
        return [replace(each, sha256="0" * 64) for each in verify_archive(archive, **options)]

    monkeypatch.setattr(publish, "verify", verify)
    with pytest.raises(ArchiveDamaged):
        case.make(case.job(case.write(tiffs.build(SPEC))))
    assert nothing_published(case)


# --- disks and file systems -------------------------------------------------------------------


def _writer(kind: ContainerKind) -> type[container.Container]:
    return container.ZipWriter if kind == "zip" else container.FolderContainer


def _full_after(count: int, kind: ContainerKind, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let ``count`` keys be written, then none; the list gets the keys that were tried."""
    tried: list[str] = []
    write = _writer(kind).set

    def keep(self: container.Container, key: str, value: bytes | memoryview) -> None:
        tried.append(key)
        if len(tried) > count:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, key, value)

    monkeypatch.setattr(_writer(kind), "set", keep)
    return tried


def test_a_disk_that_is_full_in_the_middle_leaves_nothing(case: Case) -> None:
    job = case.job(case.write(tiffs.build(SPEC)))
    with pytest.MonkeyPatch.context() as patch:
        keys = _full_after(1000, case.kind, patch)
        case.make(job)
        whole = len(keys)
    _clear(case.destination)
    assert whole > 5
    for count in range(whole):
        with pytest.MonkeyPatch.context() as patch:
            keys = _full_after(count, case.kind, patch)
            with pytest.raises(OSError, match="No space left") as failure:
                case.make(job)
        assert failure.value.errno == errno.ENOSPC
        assert len(keys) == count + 1
        assert nothing_published(case)
        assert _temporaries(case.folder) == []
    assert case.make(job).state == "archived"


def _clear(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@contextmanager
def _no_file_longer_than(nbytes: int) -> Iterator[None]:
    """Let the system itself refuse to write: EFBIG, at any write or at the close."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_file_that_the_system_cuts_short_is_not_published(case: Case, share: float) -> None:
    job = case.job(case.write(tiffs.build(SPEC)))
    case.make(job)
    largest = max(
        path.stat().st_size for path in (case.final(), *case.final().rglob("*")) if path.is_file()
    )
    _clear(case.destination)
    with (
        _no_file_longer_than(int(largest * share)),
        pytest.raises(OSError, match="File too large"),
    ):
        case.make(job)
    assert nothing_published(case)
    assert _temporaries(case.folder) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_refuses_when_all_is_written_publishes_nothing(
    case: Case, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network file systems tell of a full disk no earlier than when the file is synced."""
    case.final().parent.mkdir()
    job = case.job(case.write(tiffs.build(SPEC)))

    def fsync(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=os.strerror(number)):
        case.make(job)
    assert nothing_published(case)


def test_pack_leaves_nothing_at_a_name_that_could_not_be_completed(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who packs from a notebook writes at the final name: half an archive must not stand there."""
    case.write(tiffs.build(SPEC))

    def fsync(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    archive = case.destination / "a.zarr"
    with pytest.raises(OSError, match="No space left"):
        pack(case.share / RELPATH, archive, recipe=Recipe(container=case.kind))
    assert not archive.exists()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_without_hard_links_an_archive_is_renamed(
    case: Case, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: Path, _target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    data = tiffs.build(SPEC)
    source = case.write(data)
    assert case.make(case.job(source)).state == "archived"
    holds(case.final(), data)
    assert case.make(case.job(source)).adopted


@pytest.mark.parametrize("put", FOREIGN)
def test_without_hard_links_nothing_is_overwritten_either(
    tmp_path: Path, put: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(folder=tmp_path, kind="zip")
    case.destination.mkdir()
    before: list[dict[str, Any]] = []

    def refuse(_self: Path, _target: Path) -> None:
        put(case.final())
        before.append(_foreign(case))
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(NameTaken):
        case.make(case.job(case.write(tiffs.build(SPEC))))
    assert _foreign(case) == before[0]
    assert _temporaries(tmp_path) == []


@pytest.mark.parametrize("relpath", ["a.tif", "sub/deep/a.tif"])
def test_a_destination_that_is_gone_is_not_made_again(case: Case, relpath: str) -> None:
    """It was unmounted: what would be written now lands on the wrong disk."""
    source = case.write(tiffs.build(SPEC), relpath)
    case.destination.rmdir()
    with pytest.raises(OSError, match="No such file or directory"):
        publish.make(
            case.roots,
            case.job(source),
            relpath.rpartition("/")[0] + "/.decant-1-0.partial",
            lambda _nbytes: None,
        )
    assert not case.destination.exists()


# --- the sweep --------------------------------------------------------------------------------


def test_leftovers_are_removed_whatever_they_are(case: Case) -> None:
    names = ["sub/.decant-1-0.partial", "sub/.decant-1-1.partial", ".decant-1-2.partial"]
    (case.destination / "sub").mkdir()
    (case.destination / names[0]).write_bytes(b"half a zip")
    (case.destination / names[1] / "0").mkdir(parents=True)
    (case.destination / names[1] / "0/.zarray").write_bytes(b"{")
    kept = case.destination / "kept"
    kept.mkdir()
    (kept / "archive").write_bytes(b"whole")
    (case.destination / names[2]).symlink_to("kept")
    publish.sweep(case.roots, [*names, "gone/.decant-1-3.partial", ".decant-1-4.partial"])
    assert standing(case.destination).keys() == {"sub", "kept", "kept/archive"}


def test_a_leftover_that_cannot_be_there_does_not_end_the_sweep(case: Case) -> None:
    (case.destination / "sub").write_bytes(b"a file where a folder was")
    (case.destination / ".decant-1-1.partial").write_bytes(b"half")
    publish.sweep(case.roots, ["sub/.decant-1-0.partial", ".decant-1-1.partial"])
    assert standing(case.destination).keys() == {"sub"}
