"""Files and archives made to do harm: faults that were found by attack, each with its guard."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import numpy as np
import pytest
import tifffile

from decant_batch.archive import Layout, Recipe, Refusal, inspect, pack, restore, survey, verify
from decant_batch.archive.model import Stamp
from decant_batch.errors import ArchiveDamaged
from tests import tiffs
from tests.tiffs import TiffSpec


def ome(tmp_path: Path, description: bytes) -> Path:
    """A TIFF of two pages whose first description is this one, however broken."""
    path = tmp_path / "x.ome.tif"
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(np.zeros((8, 8), "u2"), description=b"?" * len(description), metadata=None)
        tiff.write(np.zeros((8, 8), "u2"), metadata=None)
    path.write_bytes(path.read_bytes().replace(b"?" * len(description), description))
    return path


OME = b'<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
PIXELS = (
    b'<Image ID="I:0"><Pixels ID="P:0" DimensionOrder="XYZCT" Type="uint16" SizeC="1" SizeT="1" '
)


@pytest.mark.parametrize(
    "description",
    [
        OME + b"<Image></OME>",
        OME + b'<Image a="&nothing;"/></OME>',
        b'<?xml version="1.0"?><!DOCTYPE OME [<!ENTITY a "aaaaaaaaa">]><OME>&a;&a;&a;&a;</OME>',
        OME + PIXELS + b'SizeX="8" SizeY="8" SizeZ="1000000000"/></Image></OME>',
        OME + PIXELS + b'SizeX="8" SizeY="8" SizeZ="-3"/></Image></OME>',
        OME + PIXELS + b'SizeX="100000" SizeY="100000" SizeZ="2"/></Image></OME>',
        OME + PIXELS + b'SizeX="8" SizeY="8" SizeZ="2"><TiffData PlaneCount="200000000"/>'
        b"</Pixels></Image></OME>",
        OME + PIXELS + b'SizeX="8" SizeY="8" SizeZ="x"/></Image></OME>',
    ],
)
def test_metadata_that_lies_costs_the_axes_and_no_memory(
    tmp_path: Path, description: bytes
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    layout = survey(ome(tmp_path, description))
    assert isinstance(layout, Layout)
    assert layout.axes == ("z",)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.timeout(30)
@pytest.mark.parametrize("pages", [1, 3, 99, 150])
def test_a_loop_with_axes_is_not_followed_for_ever(tmp_path: Path, pages: int) -> None:
    """tifffile's series would: it looks for a loop once, at the hundredth page."""
    path = tmp_path / "x.tif"
    description = b"ImageJ=1.53t\nimages=4\nslices=4\n\0"
    ascii_ = 2
    spec = TiffSpec(pages=pages)
    data = tiffs.built(
        spec, lambda _page, tags: {**tags, 270: (ascii_, description)}, loop=True
    ).data
    path.write_bytes(data)
    layout = survey(path)
    assert isinstance(layout, Layout)
    assert layout.page_count == pages


@pytest.mark.parametrize(
    ("tag", "values"),
    [
        (256, (16, (2**32 - 1,))),  # a width of 2**32 - 1
        (256, (4, (7, 7, 7, 7))),  # a width of four values
        (257, (4, (0,))),
        (277, (3, (0,))),
        (277, (3, (65535,))),
        (278, (4, (0,))),
        (273, (16, (2**63 - 20,))),
        (273, (16, (2**64 - 20,))),
        (284, (3, (3,))),
        (258, (3, (0,))),
    ],
)
def test_impossible_numbers_are_no_layout(
    tmp_path: Path, tag: int, values: tuple[int, tuple[int, ...]]
) -> None:
    path = tmp_path / "x.tif"
    spec = TiffSpec(big=True)
    path.write_bytes(tiffs.built(spec, lambda _page, tags: {**tags, tag: values}).data)
    found = survey(path)
    if isinstance(found, Layout):  # then it is what the file holds, and comes back
        assert found.pixels_nbytes <= found.size
    archive = tmp_path / "a"
    pack(path, archive, found=found)
    assert verify(archive)[0].problem is None


def test_a_tile_longer_than_the_file_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    spec = TiffSpec(shape=(16, 8), dtype="uint8", tile_width=16, tile_length=16)
    huge = {257: (4, (40_000_000,)), 323: (4, (40_000_000,)), 325: (4, (2**32 - 1,))}
    path.write_bytes(tiffs.built(spec, lambda _page, tags: {**tags, **huge}).data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = survey(path)
    assert isinstance(found, Refusal)
    assert found.reason == "segment-past-end"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def made(tmp_path: Path, recipe: Recipe) -> Path:
    source = tmp_path / "x.tif"
    source.write_bytes(tiffs.build(TiffSpec(pages=2, pixels="random", shape=(24, 20))))
    pack(source, tmp_path / "a", recipe=recipe)
    return tmp_path / "a"


def test_any_flipped_bit_of_a_zip_is_told_as_damage(tmp_path: Path) -> None:
    archive = made(tmp_path, Recipe())
    whole = archive.read_bytes()
    for at in range(0, len(whole), 3):
        data = bytearray(whole)
        data[at] ^= 1 << (at % 8)
        archive.write_bytes(data)
        try:
            (proved,) = verify(archive)
            inspect(archive)
        except ArchiveDamaged:
            continue
        except FileNotFoundError:
            pytest.fail(f"bit at {at}")
        assert proved.problem is not None or data != whole


@pytest.mark.parametrize("keep", [0, 1, 15, 16, 17, 60, 100, -1])
def test_a_chunk_cut_short_is_told_and_kills_nobody(tmp_path: Path, keep: int) -> None:
    archive = made(tmp_path, Recipe(container="folder"))
    chunk = archive / "0/0/0/0"
    chunk.write_bytes(chunk.read_bytes()[:keep])
    (proved,) = verify(archive)
    assert proved.problem is not None


@pytest.mark.timeout(30)
def test_pipes_links_and_devices_are_no_chunks(tmp_path: Path) -> None:
    archive = made(tmp_path, Recipe(container="folder"))
    chunk = archive / "0/0/0/0"
    kept = chunk.read_bytes()
    (tmp_path / "elsewhere").write_bytes(kept)
    for target in (None, "/dev/zero", "nowhere", str(tmp_path / "elsewhere")):
        chunk.unlink()
        if target is None:
            os.mkfifo(chunk)
        else:
            chunk.symlink_to(target)
        (proved,) = verify(archive)
        assert proved.problem is not None
    os.mkfifo(archive / "beside")
    chunk.unlink()
    chunk.write_bytes(kept)
    assert verify(archive)[0].problem is None


def test_no_permission_comes_back_that_a_source_should_not_have(tmp_path: Path) -> None:
    source = tmp_path / "x.tif"
    source.write_bytes(tiffs.build(TiffSpec()))
    pack(source, tmp_path / "a", stamp=Stamp(relpath="x.tif", mode=0o6755))
    (path,) = restore(tmp_path / "a", tmp_path / "back")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
