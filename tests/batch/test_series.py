"""Rules: which sources are one series, and in which order its members stand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decant_batch.batch import series
from decant_batch.batch.model import Placed

TZC = r"(?P<name>.+)_t(?P<t>\d+)_z(?P<z>\d+)_c(?P<c>\w+)\.tif"


def placed(relpath: str, match: str = TZC, archive: str | None = None) -> Placed | None:
    return series.place(relpath, [series.rule(match, None, archive, "auto")])


def test_groups_that_are_axes_and_the_rest_is_identity() -> None:
    found = placed("day 1/a_t003_z01_cDAPI.tif", archive="{name}")
    assert found == Placed(
        stem="day 1/a",
        axes=("t", "c", "z"),
        layout="auto",
        values=("003", "DAPI", "01"),
        identity=("day 1/a",),
    )
    assert placed("day 1/a_t003_z01.tif") is None
    assert placed("a_t003_z01_cDAPI.tif.bak") is None


def test_without_a_template_the_archive_has_the_path_without_the_axes() -> None:
    assert placed("d/a_t3_z1_cX.tif").stem == "d/a_t_z_c.tif"  # type: ignore[union-attr]
    across = r"(?P<name>.+)/TimePoint_(?P<t>\d+)/(?P<well>\w+)\.tif"
    found = placed("p/TimePoint_12/C07.tif", across)
    assert found is not None
    assert (found.stem, found.values, found.identity) == (
        "p/TimePoint_/C07.tif",
        ("12",),
        ("p", "C07"),
    )


def test_the_first_rule_that_matches_takes_it() -> None:
    rules = [
        series.rule(r"(?P<n>a)_(?P<t>\d)\.tif", None, "{n}", "nested"),
        series.rule(r"(?P<n>.)_(?P<t>\d)\.tif", None, "other {n}", "auto"),
    ]
    stems = [series.place(f"{name}_1.tif", rules) for name in "ab"]
    assert [each.stem for each in stems if each] == ["a", "other b"]


def test_a_stem_stays_below_the_destination() -> None:
    for archive, stem in (("/{name}/..//a", "d/b/a"), ("../{name}", "d/b"), ("..", "series")):
        assert placed("d/b_t1_z1_c1.tif", archive=archive).stem == stem  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("match", "axes", "archive", "why"),
    [
        ("(", None, None, "no regular expression"),
        (r"(?P<a>.)", None, None, "no group t, c or z"),
        (r"(?P<t>.)", ["t", "t"], None, "twice"),
        (r"(?P<t>.)", ["z"], None, "no group"),
        (r"(?P<x>.)", ["x"], None, "pages' own"),
        (r"(?P<t>.)(?P<n>.)", None, "{t}", "no identity group"),
        (r"(?P<t>.)(?P<n>.)", None, "{m}", "no identity group"),
    ],
)
def test_rules_that_cannot_be(
    match: str, axes: list[str] | None, archive: str | None, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        series.rule(match, axes, archive, "auto")


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 9),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_members_in_any_order_stand_in_the_grids(
    lengths: list[int], first: int, step: int, chance: object
) -> None:
    places = list(itertools.product(*(range(length) for length in lengths)))
    rows = [tuple(str(first + step * i) for i in place) for place in places]
    shuffled = list(rows)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    found = series.arrange("tcz"[: len(lengths)], shuffled)
    assert (found.problem, found.lengths) == ("", tuple(lengths))
    assert [shuffled[i] for i in found.order] == rows


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["1", "2", "4"], "nothing between 2 and 4"),
        (["0", "10", "20", "40"], "nothing between 20 and 40"),
        (["1", "01"], "one place on axis t"),
        (["1", "1"], "one place"),
    ],
)
def test_gaps_and_duplicates_are_told(values: list[str], why: str) -> None:
    assert why in series.arrange(["t"], [(value,) for value in values]).problem


def test_a_hole_in_the_grid_is_told() -> None:
    rows = [("1", "a"), ("1", "b"), ("2", "a")]
    assert "4 places, 3 members" in series.arrange(["t", "c"], rows).problem


def test_names_are_ordered_by_their_numbers_and_label_channels() -> None:
    found = series.arrange(["c"], [("w10",), ("w2",), ("DAPI",)])
    assert found.labels == ("DAPI", "w2", "w10")
    assert series.arrange(["c"], [("1",), ("2",)]).labels == ()
