"""Mode, name and memory of each job, or the refusal: pure, so every border is tried from each side.

The ways that a source can go, as memory shrinks: byte-exact with all threads, byte-exact with one,
verbatim with all threads, verbatim with one, not at all.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decant_batch.archive.model import Recipe
from decant_batch.batch import memory, plan
from decant_batch.batch.model import Job, Outcome, Source, Survey, Trouble
from decant_batch.batch.plan import Terms

RESERVED = 150 << 20
THREADS = 4
PLENTY = 1 << 40


def survey(relpath: str = "sub/a.tif", **changes: Any) -> Survey:
    """A TIFF with pages so large that each way takes less memory than the one before."""
    values: dict[str, Any] = {
        "source": Source(relpath=relpath, size=1 << 32, mtime_ns=1, mode=0o644),
        "is_tiff": True,
        "mode": "byte-exact",
        "page_nbytes": 300 << 20,
        "page_count": 10,
        "segment_count": 10,
        "live_nbytes": 600 << 20,
        "pixels_nbytes": 3000 << 20,
    }
    return Survey(**(values | changes))


def text_file(relpath: str = "notes.txt", **changes: Any) -> Survey:
    values: dict[str, Any] = {
        "source": Source(relpath=relpath, size=10, mtime_ns=1, mode=0o644),
        "is_tiff": False,
        "mode": "verbatim",
        "reason": "not-a-tiff",
        "detail": "the file begins with b'Well'",
    }
    return Survey(**(values | changes))


def terms(allowed: int = PLENTY, **changes: Any) -> Terms:
    values: dict[str, Any] = {
        "recipe": Recipe(threads=THREADS),
        "others": "verbatim",
        "allowed": allowed,
        "reserved": RESERVED,
    }
    return Terms(**(values | changes))


def planned(item: Job | Outcome) -> Job:
    assert isinstance(item, Job), item
    return item


def refused(item: Job | Outcome) -> Outcome:
    assert isinstance(item, Outcome), item
    return item


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("container", "version", "name"),
    [
        ("zip", 1, "sub/a.ome.tif.zarr.zip"),
        ("zip", 2, "sub/a.ome.tif.v2.zarr.zip"),
        ("folder", 1, "sub/a.ome.tif.zarr"),
        ("folder", 12, "sub/a.ome.tif.v12.zarr"),
    ],
)
def test_an_archive_mirrors_its_source(
    container: Literal["zip", "folder"], version: int, name: str
) -> None:
    recipe = Recipe(container=container)
    assert plan.archive_name("sub/a.ome.tif", recipe, version) == name
    job = planned(plan.job(survey("sub/a.ome.tif"), terms(recipe=recipe), version))
    assert job.archive == name
    assert job.recipe.container == container


@pytest.mark.parametrize("version", [1, 2, 7])
def test_further_names_are_the_next_versions(version: int) -> None:
    job = planned(plan.job(survey(), terms(), version))
    assert job.further
    assert job.further == tuple(
        plan.archive_name("sub/a.tif", Recipe(), version + 1 + step)
        for step in range(len(job.further))
    )


@pytest.mark.parametrize("container", ["zip", "folder"])
def test_two_sources_never_have_one_name(container: Literal["zip", "folder"]) -> None:
    relpaths = ["a.tif", "a.tiff", "a.ome.tif", "a.tif.zip", "A.tif", "a/a.tif", "a.tif.v2"]
    recipe = Recipe(container=container)
    assert len({plan.archive_name(relpath, recipe, 1) for relpath in relpaths}) == len(relpaths)


@pytest.mark.parametrize(
    ("stem", "fits"),
    [
        ("a" * 246, True),
        ("a" * 247, False),
        ("ü" * 123, True),  # two bytes each
        ("ü" * 124, False),
        ("\udce9" * 246, True),  # one byte each, and no UTF-8
        ("\udce9" * 247, False),
    ],
)
def test_the_bytes_of_a_name_are_counted(stem: str, fits: bool) -> None:
    item = plan.job(survey(f"sub/{stem}"), terms(), 1)
    assert isinstance(item, Job) is fits
    if isinstance(item, Outcome):
        assert (item.state, item.failure) == ("failed", "permanent")
        assert f"sub/{stem}" in item.message
        assert "shorten" in item.message


def test_only_the_last_part_of_a_path_is_counted() -> None:
    deep = "/".join(["folder" * 40] * 10) + "/a.tif"
    assert planned(plan.job(survey(deep), terms(), 1)).archive == f"{deep}.zarr.zip"


def test_a_name_that_only_the_version_makes_too_long_is_refused_not_written() -> None:
    relpath = "b" * 246
    assert planned(plan.job(survey(relpath), terms(), 1)).archive == f"{relpath}.zarr.zip"
    outcome = refused(plan.job(survey(relpath), terms(), 2))
    assert (outcome.state, outcome.failure) == ("failed", "permanent")
    assert relpath in outcome.message


def test_no_further_name_is_too_long() -> None:
    job = planned(plan.job(survey("b" * 246), terms(), 1))
    for name in job.further:
        nbytes = len(PurePosixPath(name).name.encode("utf-8", "surrogateescape"))
        assert nbytes <= plan.MAX_NAME_NBYTES, f"{nbytes} bytes: cannot be made when it is needed"


def test_a_folder_leaves_more_room_for_the_name() -> None:
    recipe = Recipe(container="folder")
    assert isinstance(plan.job(survey("c" * 250), terms(recipe=recipe), 1), Job)
    assert isinstance(plan.job(survey("c" * 251), terms(recipe=recipe), 1), Outcome)


# --- memory -----------------------------------------------------------------------------------


def ways(found: Survey) -> list[tuple[int, str, int]]:
    """Projected bytes, mode and threads of each way, as the contents of ``memory`` say."""
    verbatim = replace(found, mode="verbatim")
    return [
        (RESERVED + memory.job_nbytes(each, threads), each.mode, threads)
        for each in (found, verbatim)
        for threads in (THREADS, 1)
    ]


def test_as_memory_shrinks_threads_go_first_then_pages_then_the_job() -> None:
    expected = ways(survey())
    needs = [nbytes for nbytes, _mode, _threads in expected]
    assert needs == sorted(needs, reverse=True)
    assert len(set(needs)) == 4
    for number, (nbytes, mode, threads) in enumerate(expected):
        for allowed in (nbytes, PLENTY if number == 0 else needs[number - 1] - 1):
            job = planned(plan.job(survey(), terms(allowed), 1))
            assert (job.mode, job.recipe.threads) == (mode, threads)
            assert job.projected_bytes == nbytes <= allowed


def test_verbatim_for_want_of_memory_says_so() -> None:
    allowed = ways(survey())[1][0] - 1
    job = planned(plan.job(survey(), terms(allowed), 1))
    assert (job.mode, job.reason) == ("verbatim", "over-memory")
    assert str(600 << 20) in job.detail


def test_byte_exact_has_no_reason() -> None:
    job = planned(plan.job(survey(), terms(), 1))
    assert (job.mode, job.reason, job.detail) == ("byte-exact", None, "")


def test_what_not_even_verbatim_fits_is_refused_with_the_next_step() -> None:
    least = min(nbytes for nbytes, _mode, _threads in ways(survey()))
    assert isinstance(plan.job(survey(), terms(least), 1), Job)
    outcome = refused(plan.job(survey(), terms(least - 1), 1))
    assert (outcome.state, outcome.failure) == ("failed", "permanent")
    for word in ("sub/a.tif", str(least), str(least - 1), "memory"):
        assert word in outcome.message


@pytest.mark.parametrize("allowed", [PLENTY, 200 << 20])
def test_another_reason_is_kept_whatever_the_memory(allowed: int) -> None:
    odd = survey(mode="verbatim", reason="compressed", detail="page 0: compression LZW")
    job = planned(plan.job(odd, terms(allowed), 1))
    assert (job.mode, job.reason, job.detail) == (odd.mode, odd.reason, odd.detail)


@given(
    allowed=st.integers(0, 1 << 34),
    page_nbytes=st.integers(1, 1 << 31),
    live_pages=st.integers(1, 20),
    tiled=st.booleans(),
    threads=st.integers(1, 8),
)
def test_no_job_is_projected_to_take_more_than_is_allowed(
    allowed: int, page_nbytes: int, live_pages: int, tiled: bool, threads: int
) -> None:
    found = survey(page_nbytes=page_nbytes, live_nbytes=live_pages * page_nbytes, tiled=tiled)
    item = plan.job(found, terms(allowed, recipe=Recipe(threads=threads)), 1)
    if isinstance(item, Job):
        way = replace(found, mode=item.mode)
        assert item.projected_bytes == RESERVED + memory.job_nbytes(way, item.recipe.threads)
        assert item.projected_bytes <= allowed
        assert item.recipe.threads in (threads, 1)
        assert (item.mode == "verbatim") is (item.reason == "over-memory")
    else:
        assert RESERVED + memory.job_nbytes(replace(found, mode="verbatim"), 1) > allowed


# --- others and troubles ----------------------------------------------------------------------


def test_what_is_no_tiff_is_reported_with_its_reason() -> None:
    outcome = refused(plan.job(text_file(), terms(others="report"), 1))
    assert outcome == Outcome(
        source=text_file().source,
        state="reported",
        reason="not-a-tiff",
        detail="the file begins with b'Well'",
    )


def test_what_is_no_tiff_is_packed_verbatim_where_the_config_says_so() -> None:
    job = planned(plan.job(text_file(), terms(others="verbatim"), 1))
    assert (job.archive, job.mode) == ("notes.txt.zarr.zip", "verbatim")
    assert (job.reason, job.detail) == ("not-a-tiff", "the file begins with b'Well'")


def test_an_odd_tiff_is_packed_also_where_others_are_only_reported() -> None:
    odd = survey(mode="verbatim", reason="unreadable-tiff", detail="truncated")
    assert planned(plan.job(odd, terms(others="report"), 1)).mode == "verbatim"


@pytest.mark.parametrize("relpath", ["n" * 255, "notes.txt"])
def test_what_is_only_reported_needs_neither_a_name_nor_memory(relpath: str) -> None:
    outcome = refused(plan.job(text_file(relpath), terms(0, others="report"), 1))
    assert outcome.state == "reported"


@pytest.mark.parametrize("others", ["report", "verbatim"])
@pytest.mark.parametrize("failure", ["transient", "permanent", "destination"])
@pytest.mark.parametrize("is_tiff", [True, False])
def test_trouble_is_passed_on_as_it_is(others: str, failure: Any, is_tiff: bool) -> None:
    trouble = Trouble(relpath="sub/a.tif", failure=failure, message="/share/sub/a.tif: EIO; wait")
    found = survey(is_tiff=is_tiff, mode="verbatim", trouble=trouble)
    outcome = refused(plan.job(found, terms(others=others), 1))
    assert (outcome.source, outcome.state) == (found.source, "failed")
    assert (outcome.failure, outcome.message) == (failure, trouble.message)
