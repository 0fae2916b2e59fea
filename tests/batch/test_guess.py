"""Series guessed from the digits in names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decant_batch.batch.guess import Guess


@pytest.mark.parametrize(
    ("name", "stem", "axes", "values"),
    [
        ("Stack_t01z32c1_ORG.tif", "Stack_tzc_ORG.tif", "tzc", ("01", "32", "1")),
        ("d/W2--P001--T00027--Z000--C.tif", "d/W2--P001--T--Z--C.tif", "tz", ("00027", "000")),
        ("img_channel000_position003_time000000012_z004.ome.tif",
         "img_channel_position003_time_z.ome.tif", "tzc", ("000000012", "004", "000")),
        ("a Time 3 ch-2.TIFF", "a Time  ch-.TIFF", "tc", ("3", "2")),
        ("t1_copy_t2.tif", "t1_copy_t.tif", "t", ("2",)),
        ("img0012.tif", "img.tif", "t", ("0012",)),
        ("s3_img7b.tif", "s3_imgb.tif", "t", ("7",)),
        ("cut1.ome.tif", "cut.ome.tif", "t", ("1",)),
        ("2020-10-02T101500_x.tif", "2020-10-02T_x.tif", "t", ("101500",)),
    ],
)  # fmt: skip
def test_numbers_after_an_axis_are_that_axis_and_else_the_last_is_t(
    name: str, stem: str, axes: str, values: tuple[str, ...]
) -> None:
    found = Guess().place(name)
    assert found is not None
    assert (found.stem, found.axes, found.values) == (stem, tuple(axes), values)
    assert found.found == "guessed"


@pytest.mark.parametrize("name", ["img.tif", "t1.txt", "t1", "7/img.tif", "a1.tif.bak"])
def test_what_has_no_number_or_is_no_tiff_is_left_alone(name: str) -> None:
    assert Guess().place(name) is None


@given(st.text(st.sampled_from("tzc/x_-017T .é"), max_size=20), st.text("0123456789", max_size=9))
def test_a_name_is_made_of_its_stem_and_its_values(name: str, digits: str) -> None:
    found = Guess().place(f"{name}{digits}.tif")
    if found is not None:
        assert sorted(found.stem + "".join(found.values)) == sorted(f"{name}{digits}.tif")
        assert all(value.isdecimal() for value in found.values)
        assert len(set(found.axes)) == len(found.values)
