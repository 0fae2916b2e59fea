from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from decant_batch.archive.model import Inspection, Verified
from decant_batch.ui import inspection

EXACT = Inspection(
    uri="file:///dst/plate%2007/a.tif.zarr.zip",
    container="zip",
    mode="byte-exact",
    reason=None,
    detail="",
    original_name="a.tif",
    relpath="plate 07/a.tif",
    mtime_ns=1_773_219_600_000_000_000,
    source_nbytes=2_097_906,
    archive_nbytes=1_000_000,
    sha256="ab" * 32,
    byteorder=">",
    shape=(4, 512, 512),
    axes=("c", "y", "x"),
    dtype="uint16",
    page_count=4,
    husk_nbytes=754,
    codec="blosc:zstd:byteshuffle:clevel=5",
    written_by="decant-batch 0.1.0",
)


def test_an_archive_says_what_it_holds() -> None:
    text = inspection.inspection_text(EXACT, "2026-03-11 21:00:00 UTC")
    for part in (
        "file:///dst/plate%2007/a.tif.zarr.zip",
        "plate 07/a.tif",
        "changed      2026-03-11 09:00:00 UTC",
        "2.0 MiB (2,097,906 bytes)",
        "976.6 KiB (1,000,000 bytes), 52 % smaller",
        "ab" * 32,
        "c=4 y=512 x=512, uint16",
        "uint16, big-endian in the original, 4 pages",
        "754 in the husk",
        "verified     2026-03-11 21:00:00 UTC",
    ):
        assert part in text


def test_a_verbatim_archive_says_why_and_claims_no_pixels() -> None:
    verbatim = replace(
        EXACT, mode="verbatim", reason="compressed", detail="LZW", shape=(), axes=(), byteorder=""
    )
    text = inspection.inspection_text(verbatim, "never")
    assert "verbatim, because compressed (LZW)" in text
    assert "pixels" not in text
    assert "husk" not in text


def test_an_archive_may_be_larger_than_its_original() -> None:
    assert ", 2 % larger" in inspection.inspection_text(
        replace(EXACT, source_nbytes=1000, archive_nbytes=1020), "never"
    )
    empty = inspection.inspection_text(replace(EXACT, source_nbytes=0), "never")
    assert "larger" not in empty
    assert "smaller" not in empty


def test_a_series_names_some_members() -> None:
    series = replace(
        EXACT, mode="series", relpath=None, members=tuple(f"{at}\x07.tif" for at in range(9))
    )
    text = inspection.inspection_text(series, "never")
    assert r"9: 0\x07.tif, 1\x07.tif" in text
    assert "and 4 more" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_a_foreign_archive_without_dates() -> None:
    text = inspection.inspection_text(replace(EXACT, mtime_ns=None, relpath=None), "never")
    assert "changed" not in text
    assert "original     a.tif" in text


def test_a_foreign_archive_whose_axes_have_no_names() -> None:
    assert "4 x 512 x 512, uint16" in inspection.inspection_text(replace(EXACT, axes=()), "never")


def test_what_was_verified_and_what_differs_is_one_line_each() -> None:
    good = Verified(name="a.tif", nbytes=2048, sha256="ab" * 32, problem=None)
    bad = replace(good, name="b.tif", problem="3 bytes differ")
    path = Path("x.zarr.zip")
    both = (good, bad)
    assert inspection.verified_text(path, both) == (
        f"ok  x.zarr.zip: a.tif, 2.0 KiB, sha256 {'ab' * 32}"
    )
    assert inspection.damage_text(path, both) == "x.zarr.zip: b.tif: 3 bytes differ"
    assert inspection.damage_text(path, (good,)) is None
