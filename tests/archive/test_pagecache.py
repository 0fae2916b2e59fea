"""The page cache: what is let go behind a reader or writer, and that it is advice only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decant_batch.archive import container, pagecache

MIB = 1 << 20
VALUE = bytes(5 * MIB)
KEYS = [f"0/{i}" for i in range(12)]


@pytest.fixture
def advice(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Advice given: the file's name, and the offset before which it is forgotten."""
    given: list[tuple[str, int]] = []

    def advise(handle: int, start: int, nbytes: int, what: int) -> None:
        assert (start, what) == (0, os.POSIX_FADV_DONTNEED)
        given.append((Path(f"/proc/self/fd/{handle}").resolve().name, nbytes))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return given


def write(path: Path) -> None:
    with container.create(path, "zip") as made:
        for key in KEYS:
            made.set(key, VALUE)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no such advice")
def test_a_file_that_passes_once_leaves_little_in_the_cache(
    tmp_path: Path, advice: list[tuple[str, int]]
) -> None:
    write(tmp_path / "a.zip")
    whole = len(KEYS) * len(VALUE) // pagecache.KEPT_NBYTES
    assert advice == [("a.zip", 0)] * whole
    advice.clear()

    with container.open_container(tmp_path / "a.zip") as made:
        for key in KEYS:
            assert made.get(key) == VALUE
    ends = [end for _, end in advice]
    assert len(ends) == whole
    # What comes after the entry is not read yet: the system has read ahead there.
    assert ends == sorted(ends)
    assert 0 < ends[0] <= pagecache.KEPT_NBYTES
    assert ends[-1] < (tmp_path / "a.zip").stat().st_size - len(VALUE)


def test_systems_without_such_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    write(tmp_path / "a.zip")
    with container.open_container(tmp_path / "a.zip") as made:
        made.drop_cache()
        assert made.get(KEYS[-1]) == VALUE
