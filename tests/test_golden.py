"""Archives of earlier versions are read for ever: to the byte as they were, and back to the byte.

Nothing here writes into tests/golden: what is missing or changed there fails. New archives are
added by hand, with tests/golden/make.py.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TypedDict

import pytest

from decant_batch.archive import inspect, restore, verify
from tests.recover import recover

GOLDEN = Path(__file__).parent / "golden"


class Golden(TypedDict):
    """What is recorded of one archive and of its source."""

    mode: str
    archive_sha256: str
    original_sha256: str
    original_size: int


RECORDED: dict[str, Golden] = (
    json.loads((GOLDEN / "golden.json").read_text()) if (GOLDEN / "golden.json").exists() else {}
)
# Whoever removes one of these breaks a promise: archives of every version are read for ever.
FIRST = {
    "strips-le.tif.zarr.zip",
    "tiles-be.tif.zarr.zip",
    "planar.tif.zarr.zip",
    "rgb.tif.zarr.zip",
    "interleaved.tif.zarr.zip",
    "notes.txt.zarr.zip",
    "hyperstack.tif.zarr",
}


def fingerprint(archive: Path) -> str:
    """sha256 of a zip; of a folder, that of the lines ``sha256 *path`` of all its files, sorted."""
    if archive.is_file():
        return hashlib.sha256(archive.read_bytes()).hexdigest()
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()} *{file.relative_to(archive).as_posix()}\n"
        for file in archive.rglob("*")
        if file.is_file()
    ]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def test_none_is_missing_and_none_is_unknown() -> None:
    standing = {path.name for path in GOLDEN.iterdir() if ".zarr" in path.name}
    assert standing == set(RECORDED)
    assert standing >= FIRST


@pytest.mark.parametrize("name", RECORDED)
def test_has_the_bytes_it_always_had(name: str) -> None:
    assert fingerprint(GOLDEN / name) == RECORDED[name]["archive_sha256"]


@pytest.mark.parametrize("name", RECORDED)
def test_verifies_and_says_what_it_is(name: str) -> None:
    golden = RECORDED[name]
    (proved,) = verify(GOLDEN / name)
    assert (proved.problem, proved.sha256) == (None, golden["original_sha256"])
    found = inspect(GOLDEN / name)
    assert (found.mode, found.source_nbytes) == (golden["mode"], golden["original_size"])


@pytest.mark.parametrize("name", RECORDED)
def test_gives_its_original_back(name: str, tmp_path: Path) -> None:
    golden = RECORDED[name]
    (restored,) = restore(GOLDEN / name, tmp_path)
    data = restored.read_bytes()
    assert restored == tmp_path / name.partition(".zarr")[0]
    assert len(data) == golden["original_size"]
    assert hashlib.sha256(data).hexdigest() == golden["original_sha256"]
    assert restored.stat().st_mtime_ns == inspect(GOLDEN / name).mtime_ns
    assert recover(GOLDEN / name) == {restored.name: data}
