from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from decant_batch.batch.discover import folders, walk, walking
from decant_batch.batch.discover.globs import glob_regex, matches, reach_regex
from decant_batch.batch.model import Excluded, Source, Trouble
from decant_batch.errors import UsageError

NAMES = st.text("ab.-[]!*?^\\é/\n", min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def _descriptors_are_closed() -> Iterator[None]:
    before = _open_descriptors()
    yield
    assert _open_descriptors() == before


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def _made(root: Path, *relpaths: str) -> Path:
    """``root`` with a file at each relpath, of as many bytes as that has characters."""
    for relpath in relpaths:
        path = root / relpath
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(relpath))
    return root


def _sources(root: Path, **how: Any) -> list[str]:
    return [item.relpath for item in walk(root, **how) if isinstance(item, Source)]


def _excluded(root: Path, **how: Any) -> dict[str, str]:
    return {item.relpath: item.why for item in walk(root, **how) if isinstance(item, Excluded)}


def _troubles(root: Path, **how: Any) -> list[Trouble]:
    return [item for item in walk(root, **how) if isinstance(item, Trouble)]


@pytest.fixture
def listing_fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int, int], None]:
    """Let the listing of a folder fail after so many entries, whoever runs the test."""

    def fails(folder: Path, number: int, after: int = 0) -> None:
        marked, real = folder.stat().st_ino, os.scandir

        @contextmanager
        def scandir(descriptor: int) -> Iterator[Iterator[os.DirEntry[str]]]:
            with real(descriptor) as entries:
                if os.fstat(descriptor).st_ino == marked:
                    yield _cut(entries, number, after)
                else:
                    yield entries

        monkeypatch.setattr(os, "scandir", scandir)

    return fails


def _cut(
    entries: Iterator[os.DirEntry[str]], number: int, after: int
) -> Iterator[os.DirEntry[str]]:
    yield from sorted(entries, key=lambda entry: entry.name)[:after]
    raise OSError(number, os.strerror(number))


@pytest.fixture
def stat_fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    def fails(marked: str, number: int) -> None:
        real = os.stat

        def failing(path: Any, **how: Any) -> os.stat_result:
            if path == marked:
                raise OSError(number, os.strerror(number))
            return real(path, **how)

        monkeypatch.setattr(os, "stat", failing)

    return fails


# --- what is found -----------------------------------------------------------------------------


def test_each_file_is_a_source_with_what_the_system_says(tmp_path: Path) -> None:
    file = _made(tmp_path, "plate 1/well A1.tif") / "plate 1/well A1.tif"
    file.chmod(0o4640)
    os.utime(file, ns=(1, 1_773_219_600_123_456_789))

    assert list(walk(tmp_path)) == [
        Source(
            relpath="plate 1/well A1.tif",
            size=len("plate 1/well A1.tif"),
            mtime_ns=1_773_219_600_123_456_789,
            mode=0o4640,
        )
    ]


def test_nothing_is_opened_and_no_time_of_access_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path, "a.tif", "b/c.tif")
    opened: list[str] = []
    real = os.open

    def noting(path: Any, flags: int, *args: Any, **how: Any) -> int:
        assert flags & os.O_DIRECTORY
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        opened.append(os.fsdecode(path))
        return real(path, flags, *args, **how)

    monkeypatch.setattr(os, "open", noting)

    assert _sources(tmp_path) == ["a.tif", "b/c.tif"]
    assert not any(name.endswith(".tif") for name in opened)


def test_files_come_before_folders_by_the_bytes_of_their_names(tmp_path: Path) -> None:
    _made(tmp_path, "b.tif", "a/z.tif", "a/b/1.tif", "B/1.tif", "a-/1.tif", "é.tif", "z.tif")
    odd = os.fsdecode(b"\x80.tif")  # before é in UTF-8, though after it by code points
    (tmp_path / odd).touch()

    assert _sources(tmp_path) == [
        *("b.tif", "z.tif", odd, "é.tif"),
        *("B/1.tif", "a/z.tif", "a/b/1.tif", "a-/1.tif"),
    ]


def test_names_survive_whatever_their_bytes(tmp_path: Path) -> None:
    relpath = b"d\xff\xfe/line\nbreak \xf0\x28.tif"
    os.mkdir(os.fsencode(tmp_path) + b"/d\xff\xfe")
    with open(os.fsencode(tmp_path) + b"/" + relpath, "wb"):
        pass

    assert [os.fsencode(name) for name in _sources(tmp_path)] == [relpath]
    assert _sources(tmp_path, include=["*.tif"]) == _sources(tmp_path)


def test_the_root_may_be_relative_a_symlink_or_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path / ".share", "a.tif")
    (tmp_path / "link").symlink_to(".share")
    monkeypatch.chdir(tmp_path)

    assert _sources(tmp_path / ".share") == ["a.tif"]
    assert _sources(Path(".share")) == ["a.tif"]
    assert _sources(tmp_path / "link") == ["a.tif"]


def test_it_streams(tmp_path: Path) -> None:
    _made(tmp_path, "1.tif", "2/3.tif")
    items = walk(tmp_path)

    first = next(items)
    _made(tmp_path, "2/4.tif")

    assert isinstance(first, Source)
    assert [item.relpath for item in items] == ["2/3.tif", "2/4.tif"]


def test_a_walk_given_up_leaves_nothing_open(tmp_path: Path) -> None:
    items = walk(_made(tmp_path, "a/1.tif", "a/2.tif"))
    next(items)
    del items
    walk(tmp_path)  # and one that never began


@contextmanager
def _deep(top: Path, name: str, depth: int) -> Iterator[None]:
    """A chain of folders with a file at its end: neither made nor removed by its whole path."""
    at = os.open(top, os.O_RDONLY)
    try:
        for _ in range(depth):
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(os.open("end.tif", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        yield
        os.unlink("end.tif", dir_fd=at)
        for _ in range(depth):
            above = os.open("..", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = above
            os.rmdir(name, dir_fd=at)
    finally:
        os.close(at)


@pytest.mark.parametrize(("name", "depth"), [("d", 2000), ("deep" * 8, 1500), ("n" * 255, 40)])
def test_depth_has_no_limit(tmp_path: Path, name: str, depth: int) -> None:
    before = _open_descriptors()

    with _deep(tmp_path, name, depth):
        for item in walk(tmp_path):
            assert item.relpath == f"{name}/" * depth + "end.tif"
            assert isinstance(item, Source)
            assert _open_descriptors() <= before + 4  # the chain's own end is one


# --- what is left out --------------------------------------------------------------------------


def test_hidden_names_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    _made(tmp_path, ".a.tif", ".b/c.tif", "d/.e.tif", "d/f.tif")

    assert _sources(tmp_path) == ["d/f.tif"]
    assert list(walk(tmp_path))[:2] == [
        Excluded(relpath=".a.tif", size=6, why="hidden"),
        Excluded(relpath=".b", size=0, why="hidden", is_folder=True),
    ]
    assert _sources(tmp_path, include=[".a.tif", ".b/**"]) == []
    assert len(_sources(tmp_path, hidden=True)) == 4


@pytest.mark.parametrize(
    "relpath",
    [
        *("Thumbs.db", "d/thumbs.db", "desktop.ini", "Desktop.ini", "~$notes.docx", "ehthumbs.db"),
        *("@eaDir/x.tif", "a/@eaDir/x.tif", "#recycle/x.tif", "$RECYCLE.BIN/x", "$Recycle.Bin/x"),
        *("System Volume Information/x", "lost+found/x", "~snapshot/a/x.tif"),
        *(".DS_Store", "._a.tif", ".AppleDouble/x", ".Spotlight-V100/x", ".Trashes/x"),
        *(".fseventsd/x", ".snapshot/hourly/x.tif"),
    ],
)
def test_litter_is_left_out_unless_asked_for(tmp_path: Path, relpath: str) -> None:
    _made(tmp_path, relpath, "kept.tif")

    assert _sources(tmp_path, hidden=True) == ["kept.tif"]
    assert set(_excluded(tmp_path, hidden=True).values()) == {"litter"}
    assert sorted(_sources(tmp_path, hidden=True, litter=True)) == sorted([relpath, "kept.tif"])


def test_what_only_looks_like_litter_is_kept(tmp_path: Path) -> None:
    kept = ["My Thumbs.db", "Thumbs.db.tif", "a~$b.tif", "eaDir", "lost+found", "lostfound/x.tif"]
    _made(tmp_path, *kept)

    assert sorted(_sources(tmp_path)) == sorted(kept)


def test_symlinks_are_never_followed(tmp_path: Path) -> None:
    share = _made(tmp_path / "share", "a/b.tif")
    _made(tmp_path / "far", "x.tif")
    for name, target in {
        "file.tif": "a/b.tif",
        "folder": "a",
        "out": "../far",
        "up": "..",
        "me": "me",
        "dead": "nowhere",
    }.items():
        (share / name).symlink_to(target)

    assert _sources(share) == ["a/b.tif"]
    assert _excluded(share) == dict.fromkeys(
        ["dead", "file.tif", "folder", "me", "out", "up"], "symlink"
    )


def test_what_is_no_file_is_left_out_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tif")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))

        assert list(walk(tmp_path)) == [
            Excluded(relpath="pipe.tif", size=0, why="special"),
            Excluded(relpath="socket", size=0, why="special"),
        ]


def test_own_folders_in_the_source_are_not_walked(tmp_path: Path) -> None:
    share = _made(tmp_path / "share", "a.tif", "out/a.tif.zarr.zip", "deep/out/x", "x/state/l.db")
    (tmp_path / "alias").symlink_to("share")

    found = _excluded(share, skip=[tmp_path / "alias/out", share / "x/state", tmp_path / "far"])

    assert found == {"out": "own-folder", "x/state": "own-folder"}
    assert _sources(share, skip=[share / "out", share / "x"]) == ["a.tif", "deep/out/x"]
    assert _sources(tmp_path / "alias", skip=[share / "out", share / "x/state"]) == [
        *("a.tif", "deep/out/x")
    ]


def test_an_own_folder_made_while_the_walk_is_on_its_way_is_not_walked(tmp_path: Path) -> None:
    share = _made(tmp_path, "1.tif", "z/2.tif")
    items = walk(share, skip=[share / "z/out"])
    next(items)
    _made(share, "z/out/1.tif.zarr.zip")

    assert [item.relpath for item in items] == ["z/2.tif", "z/out"]


def test_an_own_folder_is_known_however_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = _made(tmp_path / "share", "mounted/x.tif", "a.tif")
    far = _made(tmp_path / "far", "x.tif")
    _same(monkeypatch, share / "mounted", far)

    assert _sources(share, skip=[far]) == ["a.tif"]
    assert _excluded(share, skip=[far]) == {"mounted": "own-folder"}


def test_a_source_that_is_the_destination_is_refused(tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(".")

    for skip in ([tmp_path], [tmp_path / "x", tmp_path / "alias"]):
        with pytest.raises(UsageError, match=r"is itself the destination .*; correct"):
            walk(tmp_path, skip=skip)


def test_a_folder_that_holds_itself_is_entered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path, "a/b/x.tif", "a/b/again/b/x.tif", "c/x.tif")
    _same(monkeypatch, tmp_path / "a/b/again", tmp_path / "a")

    assert _sources(tmp_path) == ["a/b/x.tif", "c/x.tif"]
    assert _excluded(tmp_path) == {"a/b/again": "loop"}


def test_a_folder_seen_twice_side_by_side_is_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path, "a/x.tif", "b/x.tif")
    _same(monkeypatch, tmp_path / "b", tmp_path / "a")

    assert _sources(tmp_path) == ["a/x.tif", "b/x.tif"]


def test_folders_that_are_not_numbered_are_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path, "a/b/x.tif")
    monkeypatch.setattr(walking, "identity", lambda found: (found.st_dev, 0))

    assert _sources(tmp_path) == ["a/b/x.tif"]


def _same(monkeypatch: pytest.MonkeyPatch, one: Path, other: Path) -> None:
    """Let two folders be one, as a bind mount does, which only root may make."""
    marked, real = one.stat().st_ino, folders.identity(other.stat())

    def identity(found: os.stat_result) -> tuple[int, int]:
        return real if found.st_ino == marked else folders.identity(found)

    monkeypatch.setattr(walking, "identity", identity)


# --- include and exclude -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "hit", "missed"),
    [
        ("**", ["a", "a/b", "a/b/c"], []),
        ("*", ["a", "a/b"], []),
        ("*.tif", ["a.tif", "a/b.tif", ".tif"], ["a.tiff", "a.TIF", "a.tif/b"]),
        ("a", ["a", "b/a"], ["ab", "a/b", "A"]),
        ("/a", ["a"], ["b/a"]),
        ("a/*", ["a/b"], ["a/b/c", "a", "x/a/b"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab/c", "x/a/b"]),
        ("**/a", ["a", "b/a", "b/c/a"], ["a/b", "ba"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "a/b/c"]),
        ("**/a/**", ["a/b", "x/a/b", "x/a/y/b"], ["a", "x/a", "xa/b"]),
        ("**/*.tif", ["a.tif", "b/a.tif"], ["a.tif/b"]),
        ("a?c", ["abc", "x/a.c"], ["ac", "a/c", "abbc"]),
        ("[a-c]x[!0-9]", ["axy", "cxx"], ["dxy", "ax1", "ax/", "ax"]),
        ("a[/]b", ["a[/]b"], ["a/b"]),
        ("[]x]", ["]", "x"], ["[]x]", "[]"]),
        ("[z-a]", [], ["z", "a", "-", "[z-a]"]),
        ("[", ["["], ["a"]),
        ("a+(b|c).$^", ["a+(b|c).$^"], ["aab.", "ab"]),
        ("a\nb*", ["a\nb\nc"], ["a"]),
        ("a/", [], ["a", "x/a", "a/b"]),
    ],
)
def test_globs_on_files(pattern: str, hit: list[str], missed: list[str]) -> None:
    regex = glob_regex([pattern])

    assert [name for name in hit if not matches(regex, name, is_folder=False)] == []
    assert [name for name in missed if matches(regex, name, is_folder=False)] == []


@pytest.mark.parametrize(
    ("pattern", "hit", "missed"),
    [
        ("a/", ["a", "x/a"], ["ab", "a/b"]),
        ("/a/", ["a"], ["x/a"]),
        ("x/a/", ["x/a"], ["a", "y/x/a"]),
        ("a/**", ["a", "a/b"], ["ab", "x/a"]),
        ("**/a/**", ["a", "x/a", "x/a/y"], ["x", "ab"]),
        ("a/*", ["a/b"], ["a"]),
        ("a/**/*", ["a/b"], ["a"]),
        ("*.zarr", ["x.zarr", "d/x.zarr"], ["x"]),
    ],
)
def test_globs_on_folders_hold_for_all_in_them(
    pattern: str, hit: list[str], missed: list[str]
) -> None:
    regex = glob_regex([pattern])

    assert [name for name in hit if not matches(regex, name, is_folder=True)] == []
    assert [name for name in missed if matches(regex, name, is_folder=True)] == []


@pytest.mark.parametrize(
    ("pattern", "reached", "not_reached"),
    [
        ("*.tif", ["a", "a/b"], []),
        ("**/x/*.tif", ["a", "a/b"], []),
        ("a/b*/c.tif", ["a", "a/b", "a/bb"], ["b", "a/c", "a/b/c", "a/b/d"]),
        ("a/**/c.tif", ["a", "a/b", "a/b/c"], ["b", "ab", "ba/a"]),
        ("/a.tif", [], ["a", "a.tif"]),
    ],
)
def test_reach_is_where_a_pattern_may_still_match(
    pattern: str, reached: list[str], not_reached: list[str]
) -> None:
    regex = reach_regex([pattern])

    assert [name for name in reached if not matches(regex, name, is_folder=True)] == []
    assert [name for name in not_reached if matches(regex, name, is_folder=True)] == []


def test_no_pattern_matches_nothing() -> None:
    assert not matches(glob_regex([]), "", is_folder=True)
    assert not matches(glob_regex([]), "a", is_folder=False)


@given(pattern=NAMES, name=NAMES)
@example(pattern="[!]", name="[!]")
@example(pattern="[]", name="[]")
@example(pattern="[--a]", name="a")
@example(pattern="[a-]", name="-")
@settings(max_examples=500)
def test_within_a_name_globs_are_those_of_fnmatch(pattern: str, name: str) -> None:
    pattern, name = pattern.replace("/", ""), name.replace("/", "")
    if not pattern or not name or pattern == "**":
        return
    ours = matches(glob_regex([f"/{pattern}"]), name, is_folder=False)

    assert ours == fnmatch.fnmatchcase(name, pattern)


PARTS = st.lists(st.sampled_from(["a", "b", "*", "?", "**", "a*", "[!a]"]), min_size=1, max_size=4)
PATTERNS = st.tuples(st.sampled_from(["", "/"]), PARTS, st.sampled_from(["", "/"])).map(
    lambda made: made[0] + "/".join(made[1]) + made[2]
)
RELPATHS = st.lists(st.sampled_from(["a", "b", "ab", "ba"]), min_size=1, max_size=4).map("/".join)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="glob.translate is there from 3.13 on")
@given(pattern=PARTS.map("/".join), relpath=RELPATHS)
@settings(max_examples=500)
def test_from_the_root_on_globs_are_those_of_the_library(pattern: str, relpath: str) -> None:
    translate: Callable[..., str] = vars(glob)["translate"]
    theirs = re.compile(translate(pattern, recursive=True, include_hidden=True, seps="/"))
    ours = matches(glob_regex([f"/{pattern}"]), relpath, is_folder=False)

    # There ``a/**`` matches the file ``a/`` as well, which is none.
    assert ours == bool(theirs.match(relpath))


def _hit(pattern: str, relpath: str, is_folder: bool) -> bool:
    """What the documentation of ``globs`` says, name by name and without a regex."""
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.removesuffix("/"):
        parts = ["**", *parts]
    return (is_folder or not pattern.endswith("/")) and _hit_parts(parts, relpath.split("/"))


def _hit_parts(parts: Sequence[str], names: Sequence[str]) -> bool:
    if not parts or not names:
        return not parts and not names
    if parts[0] != "**":
        return fnmatch.fnmatchcase(names[0], parts[0]) and _hit_parts(parts[1:], names[1:])
    if len(parts) == 1:
        return True
    return any(_hit_parts(parts[1:], names[start:]) for start in range(len(names)))


def _expected(files: Sequence[str], include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    def held(patterns: Sequence[str], relpath: str) -> bool:
        parts = relpath.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        return any(
            _hit(pattern, relpath, False) or any(_hit(pattern, folder, True) for folder in above)
            for pattern in patterns
        )

    return [file for file in files if held(include, file) and not held(exclude, file)]


@pytest.fixture(scope="module")
def bush(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ("a", "b", "ab")
    root = tmp_path_factory.mktemp("bush")
    for one in names:
        for two in names:
            _made(root, f"{one}/{two}/a.t", f"{one}/{two}/b", f"{one}/b.t", "a.t", "b.t", "ba")
    return root


@given(include=st.lists(PATTERNS, min_size=1, max_size=2), exclude=st.lists(PATTERNS, max_size=2))
@example(include=["a/b/a.t"], exclude=[])
@example(include=["a/"], exclude=["*/ab/**"])
@settings(max_examples=300, deadline=None)
def test_entering_fewer_folders_loses_no_source(
    bush: Path, include: list[str], exclude: list[str]
) -> None:
    everything = list(walk(bush))
    files = [item.relpath for item in everything]
    assert all(isinstance(item, Source) for item in everything)

    items = list(walk(bush, include=include, exclude=exclude))

    sources = [item.relpath for item in items if isinstance(item, Source)]
    assert sources == _expected(files, include, exclude)
    # Each file is accounted for once: as a source, as left out, or in a folder not entered.
    rest = {item.relpath: item for item in items if isinstance(item, Excluded)}
    assert len(rest) + len(sources) == len(items)
    for file in set(files) - set(sources):
        parts = file.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        assert sum(place in rest for place in above) == 1


def _listed(monkeypatch: pytest.MonkeyPatch, root: Path, **how: Any) -> list[str]:
    listed: list[str] = []
    real = folders.open_below

    def noting(top: int, relpath: str) -> int:
        listed.append(relpath)
        return real(top, relpath)

    with monkeypatch.context() as patch:
        patch.setattr(walking, "open_below", noting)
        list(walk(root, **how))
    return listed


@pytest.mark.parametrize("pattern", ["scratch/**", "scratch/", "scratch", "/scratch", "s*/**"])
def test_an_excluded_folder_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    _made(tmp_path, "scratch/a/b.tif", "kept/c.tif")

    assert _listed(monkeypatch, tmp_path, exclude=[pattern]) == ["", "kept"]
    assert [item for item in walk(tmp_path, exclude=[pattern]) if isinstance(item, Excluded)] == [
        Excluded(relpath="scratch", size=0, why="excluded", is_folder=True)
    ]


def test_a_folder_in_which_nothing_can_be_included_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path, "2024/a/b.tif", "2023/a/b.tif", "plates/1/raw/x.tif", "plates/1/log/x.tif")
    include = ["2024/**", "plates/*/raw/*.tif"]

    listed = _listed(monkeypatch, tmp_path, include=include)

    assert listed == ["", "2024", "2024/a", "plates", "plates/1", "plates/1/raw"]
    assert _excluded(tmp_path, include=include) == {
        "2023": "not-included",
        "plates/1/log": "not-included",
    }


def test_a_file_that_is_left_out_keeps_its_size(tmp_path: Path) -> None:
    _made(tmp_path, "a.tif", "notes.txt")

    assert list(walk(tmp_path, include=["*.tif"]))[1:] == [
        Excluded(relpath="notes.txt", size=9, why="not-included")
    ]
    assert _excluded(tmp_path, exclude=["*.txt"]) == {"notes.txt": "excluded"}


def test_an_umlaut_matches_however_it_is_stored(tmp_path: Path) -> None:
    _made(tmp_path, "Mu\u0308ller/a.tif", "M\u00fcller/b.tif")

    for written in ("Mu\u0308ller/**", "M\u00fcller/**", "M?ller/**"):
        assert sorted(_sources(tmp_path, include=[written])) == [
            *("Mu\u0308ller/a.tif", "M\u00fcller/b.tif")
        ]


# --- what cannot be read -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "failure", "words"),
    [
        (errno.EACCES, "permanent", "let this user read it"),
        (errno.EPERM, "permanent", "let this user read it"),
        (errno.EINVAL, "permanent", "exclude it"),
        (errno.EIO, "transient", "look at the storage"),
        (errno.ESTALE, "transient", "look at the storage"),
    ],
)
def test_a_folder_that_cannot_be_listed_is_reported_and_the_walk_goes_on(
    tmp_path: Path,
    listing_fails: Callable[[Path, int], None],
    number: int,
    failure: str,
    words: str,
) -> None:
    _made(tmp_path, "a/1.tif", "b/2.tif", "c/3.tif")
    listing_fails(tmp_path / "b", number)

    items = list(walk(tmp_path))

    assert [item.relpath for item in items] == ["a/1.tif", "b", "c/3.tif"]
    trouble = items[1]
    assert isinstance(trouble, Trouble)
    assert trouble.failure == failure
    assert trouble.message.startswith(f"{tmp_path}/b: cannot be read: {os.strerror(number)}; ")
    assert words in trouble.message


def test_what_was_listed_before_the_listing_broke_is_walked(
    tmp_path: Path, listing_fails: Callable[[Path, int, int], None]
) -> None:
    _made(tmp_path, "b/1.tif", "b/2/x.tif", "b/3.tif", "c/4.tif")
    listing_fails(tmp_path / "b", errno.EIO, 2)

    assert [item.relpath for item in walk(tmp_path)] == ["b/1.tif", "b", "b/2/x.tif", "c/4.tif"]


def test_a_folder_that_cannot_be_opened_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path, "a/1.tif", "b/2.tif")
    real = folders.open_below

    def refusing(top: int, relpath: str) -> int:
        if relpath == "a":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(top, relpath)

    monkeypatch.setattr(walking, "open_below", refusing)

    assert [(item.relpath, item.failure) for item in _troubles(tmp_path)] == [("a", "permanent")]
    assert _sources(tmp_path) == ["b/2.tif"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_reported(tmp_path: Path) -> None:
    _made(tmp_path, "a/1.tif", "b/2.tif")
    (tmp_path / "a").chmod(0)
    try:
        assert [item.relpath for item in _troubles(tmp_path)] == ["a"]
        assert _sources(tmp_path) == ["b/2.tif"]
    finally:
        (tmp_path / "a").chmod(stat.S_IRWXU)


def test_a_file_the_storage_does_not_answer_for_is_reported(
    tmp_path: Path, stat_fails: Callable[[str, int], None]
) -> None:
    _made(tmp_path, "d/a.tif", "d/b.tif")
    stat_fails("a.tif", errno.EIO)

    assert [(item.relpath, item.failure) for item in _troubles(tmp_path)] == [
        ("d/a.tif", "transient")
    ]
    assert _sources(tmp_path) == ["d/b.tif"]
    assert _excluded(tmp_path, exclude=["a.*"]) == {"d/a.tif": "excluded"}


def test_a_file_that_vanished_is_passed_over(
    tmp_path: Path, stat_fails: Callable[[str, int], None]
) -> None:
    _made(tmp_path, "a.tif", "b.tif")
    stat_fails("a.tif", errno.ENOENT)

    assert [item.relpath for item in walk(tmp_path)] == ["b.tif"]


def test_a_folder_that_vanished_or_changed_its_kind_does_not_stop_the_walk(tmp_path: Path) -> None:
    _made(tmp_path, "0.tif", "a/1.tif", "b/2.tif", "c/3.tif", "d/4.tif")
    items = walk(tmp_path)
    next(items)  # the root is listed
    for name in "abc":
        (tmp_path / name).rename(tmp_path / f"{name}-moved")
    (tmp_path / "b").symlink_to("b-moved")
    (tmp_path / "c").touch()

    assert [(type(item), item.relpath) for item in items] == [
        (Trouble, "b"),
        (Trouble, "c"),
        (Source, "d/4.tif"),
    ]


def test_a_listing_that_does_not_tell_folders_from_files_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(tmp_path, "a.tif", "b/c.tif", "d.tif")
    monkeypatch.setattr(folders, "_says_folder", lambda _: False)

    assert sorted(_sources(tmp_path)) == ["a.tif", "b/c.tif", "d.tif"]


# --- the root ----------------------------------------------------------------------------------


def test_a_root_that_cannot_be_walked_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dead").symlink_to("nowhere")

    with pytest.raises(UsageError, match=r"/none: no such folder; mount the share"):
        walk(tmp_path / "none")
    with pytest.raises(UsageError, match=r"/dead: no such folder; mount the share"):
        walk(tmp_path / "dead")
    with pytest.raises(UsageError, match=r"/file: not a folder; write"):
        walk(tmp_path / "file")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_root_that_cannot_be_listed_is_refused_at_once(
    tmp_path: Path, listing_fails: Callable[[Path, int], None], number: int
) -> None:
    listing_fails(tmp_path, number)

    with pytest.raises(UsageError, match=r"cannot be read: .*; let this user read"):
        walk(tmp_path)


def test_an_empty_root_has_nothing(tmp_path: Path) -> None:
    assert list(walk(tmp_path)) == []
