"""What is told of a source's pixels: sizes, units, channels, names; and where each plane is."""

from __future__ import annotations

import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import yaozarrs.v04
import zarr
import zarr.storage

from decant_batch.archive import Layout, Packed, metadata, omexml, pack, survey, units
from decant_batch.archive.model import Metadata
from decant_batch.archive.omexml import MAX_XML_NBYTES, NotRead, Place

OME = """<?xml version="1.0" encoding="UTF-8"?>
<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:1">{images}</OME>"""
IMAGE = """<Image ID="Image:{id}" Name="{name}"><Pixels ID="Pixels:{id}" DimensionOrder="XYZCT"
Type="uint16" SizeX="{width}" SizeY="{length}" SizeZ="1" SizeC="1" SizeT="1" {more}>
<Channel ID="Channel:{id}:0" Name="DAPI &amp; co" Color="-16776961" SamplesPerPixel="1"/>{data}
</Pixels></Image>"""
HERE = Place(image=0, file="a.ome.tif", width=7, length=5)


def ome(*images: str) -> bytes:
    return OME.format(images="".join(images)).encode()


def image(number: int = 0, **changed: Any) -> str:
    values = {"name": f"image {number}", "width": 7, "length": 5, "more": "", "data": "<TiffData/>"}
    return IMAGE.format(id=number, **(values | changed))


def packed(folder: Path, name: str = "a.tif") -> tuple[dict[str, Any], zarr.Array[Any], Packed]:
    """The attributes and pixels of what is packed of ``folder / name``."""
    archive = folder / f"{name}.zarr.zip"
    said = pack(folder / name, archive)
    assert said.mode == "byte-exact"
    with zarr.storage.ZipStore(archive, mode="r") as store:
        group = zarr.open_group(store, mode="r")
        pixels = group["0"]
        assert isinstance(pixels, zarr.Array)
        attributes = json.loads(json.dumps(dict(group.attrs)))
        return attributes, np.asarray(pixels[:]), said


def read(path: Path) -> Metadata:
    found = survey(path)
    assert isinstance(found, Layout)
    return metadata.read(path, found)


def scales(attributes: dict[str, Any]) -> dict[str, tuple[float, str | None]]:
    (multiscale,) = attributes["multiscales"]
    (transformation,) = multiscale["datasets"][0]["coordinateTransformations"]
    pairs = zip(multiscale["axes"], transformation["scale"], strict=True)
    return {axis["name"]: (scale, axis.get("unit")) for axis, scale in pairs}


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("µm", "micrometer"), ("μm", "micrometer"), ("um", "micrometer"),
        ("\\u00B5m", "micrometer"), ("micron", "micrometer"), ("Microns", "micrometer"),
        ("micrometre", "micrometer"), (" nm ", "nanometer"), ("mm", "millimeter"),
        ("Mm", "megameter"), ("m", "meter"), ("inch", "inch"), ("Inches", "inch"), ("in", "inch"),
        ("Å", "angstrom"), ("feet", "foot"), ("pixel", None), ("", None), ("µs", None),
        ("reference frame", None),
    ],
)  # fmt: skip
def test_units_of_length(written: str, name: str | None) -> None:
    assert units.space(written) == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("s", "second"), ("sec", "second"), ("seconds", "second"), ("ms", "millisecond"),
        ("min", "minute"), ("Minutes", "minute"), ("h", "hour"), ("d", "day"), ("frame", None),
    ],
)  # fmt: skip
def test_units_of_time(written: str, name: str | None) -> None:
    assert units.time(written) == name


def test_each_unit_is_one_of_ngffs() -> None:
    for table, listed in (
        (units._SPACE_SYMBOLS, yaozarrs._axis._VALID_SPACE_UNITS),
        (units._TIME_SYMBOLS, yaozarrs._axis._VALID_TIME_UNITS),
    ):
        assert set(table.values()) - set(listed) <= {"meter", "second"} | set()


# --- OME-XML --------------------------------------------------------------------------------------


def test_ome_xml_tells_sizes_units_channels_and_the_name() -> None:
    more = 'PhysicalSizeX="0.25" PhysicalSizeY="250" PhysicalSizeYUnit="nm" PhysicalSizeZ="2"'
    said = omexml.read(ome(image(more=more + ' TimeIncrement="1.5" TimeIncrementUnit="min"')), HERE)
    assert said.name == "image 0"
    assert {axis: (each.value, each.unit) for axis, each in said.spacing.items()} == {
        "x": (0.25, "micrometer"),
        "y": (250.0, "nanometer"),
        "z": (2.0, "micrometer"),
        "t": (1.5, "minute"),
    }
    (channel,) = said.channels
    assert (channel.name, channel.color, channel.window) == ("DAPI & co", "FF0000", None)


def test_the_image_is_the_one_whose_planes_are_in_this_file() -> None:
    def data(file: str) -> str:
        return f'<TiffData><UUID FileName="{file}">urn:uuid:{file}</UUID></TiffData>'

    document = ome(
        image(0, data=data("other.tif")),
        image(1, width=9),
        image(2, data=data("a.ome.tif")),
        image(3),
    )
    assert [
        omexml.read(document, Place(image=number, file="a.ome.tif", width=7, length=5)).name
        for number in (1, 2, None, 9)
    ] == ["image 2", "image 3", "image 2", "image 2"]


def test_a_document_that_names_another_file_says_nothing() -> None:
    binary_only = '<BinaryOnly MetadataFile="m.companion.ome" UUID="urn:uuid:2"/>'
    assert omexml.read(ome(binary_only), HERE) == Metadata()


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "XMLSyntaxError"),
        (b"<OME><Image>", "XMLSyntaxError"),
        (ome("<Image/>"), "Image"),
        (ome(image(width=8)), "no image of 7 x 5"),
        (ome(image(more='PhysicalSizeX="wide"')), "wide"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + ome(image()), "document type"),
        (ome(image()).replace(b"<OME", b"\0<OME"), "document type"),
        (b" " * (MAX_XML_NBYTES + 1), "more than"),
        ("<OME/>".encode("utf-16"), "document type"),
    ],
)
def test_a_document_that_is_odd_is_not_read(document: bytes, why: str) -> None:
    with pytest.raises(NotRead, match=why):
        omexml.read(document, HERE)


def test_only_what_is_needed_is_kept_of_a_document() -> None:
    planes = '<Plane TheC="0" TheT="0" TheZ="0"/>' * 1000
    more = "<StructuredAnnotations><XMLAnnotation ID='a'><Value/></XMLAnnotation>"
    document = ome(image(data=planes), more + "</StructuredAnnotations>")
    root, own = omexml._pruned(document, "a.ome.tif")
    assert [omexml._name(each) for each in root.iter()] == ["OME", "Image", "Pixels", "Channel"]
    assert own == [True]


# --- what ends in the archive ---------------------------------------------------------------------


def test_an_ome_tiff(tmp_path: Path) -> None:
    said = {
        "axes": "TCZYX",
        "PhysicalSizeX": 0.1,
        "PhysicalSizeXUnit": "µm",
        "PhysicalSizeY": 0.2,
        "PhysicalSizeZ": 300,
        "PhysicalSizeZUnit": "nm",
        "TimeIncrement": 5.0,
        "Channel": {"Name": ["DAPI", "GFP"]},
    }
    pixels = np.arange(2 * 2 * 3 * 5 * 7, dtype=np.uint16).reshape(2, 2, 3, 5, 7)
    tifffile.imwrite(tmp_path / "a.ome.tif", pixels, metadata=said, ome=True)
    attributes, stored, _said = packed(tmp_path, "a.ome.tif")
    np.testing.assert_array_equal(stored, pixels)
    assert scales(attributes) == {
        "t": (5.0, "second"),
        "c": (1.0, None),
        "z": (300.0, "nanometer"),
        "y": (0.2, "micrometer"),
        "x": (0.1, "micrometer"),
    }
    channels = attributes["omero"]["channels"]
    assert [channel["label"] for channel in channels] == ["DAPI", "GFP"]
    assert channels[0]["window"] == {"start": 0.0, "end": 65535.0, "min": 0.0, "max": 65535.0}
    assert attributes["multiscales"][0]["name"] == "Image0"
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as tiff:
        document = tiff.ome_metadata
    with zipfile.ZipFile(tmp_path / "a.ome.tif.zarr.zip") as archive:
        assert archive.read("OME/METADATA.ome.xml").decode() == document


def test_an_imagej_hyperstack(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 2 * 5 * 7, dtype=np.uint16).reshape(2, 3, 2, 5, 7)
    tables = [np.zeros((3, 256), np.uint8) for _ in range(2)]
    tables[0][1] = tables[1][0] = np.arange(256)
    tifffile.imwrite(
        tmp_path / "a.tif",
        pixels,
        imagej=True,
        resolution=(4.0, 2.0),
        metadata={
            "axes": "TZCYX", "unit": "um", "spacing": 1.5, "finterval": 0.5, "mode": "composite",
            "Ranges": (10.0, 500.0, 20.0, 600.0), "LUTs": tables,
        },
    )  # fmt: skip
    attributes, stored, _said = packed(tmp_path)
    np.testing.assert_array_equal(stored, pixels.transpose(0, 2, 1, 3, 4))
    assert scales(attributes) == {
        "t": (0.5, "second"),
        "c": (1.0, None),
        "z": (1.5, "micrometer"),
        "y": (0.5, "micrometer"),
        "x": (0.25, "micrometer"),
    }
    first, second = attributes["omero"]["channels"]
    assert (first["color"], second["color"]) == ("00FF00", "FF0000")
    assert first["window"] == {"start": 10.0, "end": 500.0, "min": 0.0, "max": 65535.0}


def test_imagejs_labels_name_channels_only_where_each_plane_is_one(tmp_path: Path) -> None:
    labels = {"Labels": ["red", "green"]}
    for axes, named in (("CYX", ["red", "green"]), ("ZYX", [])):
        pixels = np.zeros((2, 5, 7), np.uint8)
        about = {"axes": axes, **labels}
        tifffile.imwrite(tmp_path / f"{axes}.tif", pixels, imagej=True, metadata=about)
        assert [channel.name for channel in read(tmp_path / f"{axes}.tif").channels] == named


@pytest.mark.parametrize(
    ("unit", "step"), [("INCH", (254.0, "micrometer")), ("CENTIMETER", (100.0, "micrometer")),
                       ("NONE", (1.0, None))]
)  # fmt: skip
def test_resolution_tags(tmp_path: Path, unit: str, step: tuple[float, str | None]) -> None:
    pixels = np.zeros((5, 7), np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, resolution=(100, 100), resolutionunit=unit)
    assert scales(packed(tmp_path)[0])["x"] == step


def test_a_plain_file_says_nothing_and_has_no_display_settings(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5, 7), np.uint8))
    attributes, _pixels, said = packed(tmp_path)
    assert "omero" not in attributes
    assert attributes["multiscales"][0]["name"] == "a.tif"
    assert said.warnings == ()


@pytest.mark.parametrize("bad", ["&bomb;", "<Image>", "\x07", 'SizeX="-1"'])
def test_a_broken_document_costs_a_warning_and_no_byte(tmp_path: Path, bad: str) -> None:
    document = OME.format(images=image(data=bad)).encode()
    pixels = np.zeros((5, 7), np.uint16)
    tifffile.imwrite(tmp_path / "a.ome.tif", pixels, description=document, metadata=None)
    attributes, stored, said = packed(tmp_path, "a.ome.tif")
    np.testing.assert_array_equal(stored[0], pixels)
    if bad == 'SizeX="-1"':  # text between elements is nothing to complain of
        assert said.warnings == ()
    else:
        assert [text.split(":")[0] for text in said.warnings] == ["OME-XML metadata is left out"]
        assert attributes["multiscales"][0]["name"] == "a.ome.tif"


def test_channels_that_do_not_fit_the_pixels_are_left_out(tmp_path: Path) -> None:
    channel = '<Channel ID="Channel:0:1" Name="GFP" SamplesPerPixel="1"/>'
    document = OME.format(images=image(data=channel + "<TiffData/>")).encode()
    pixels = np.zeros((5, 7), np.uint16)
    tifffile.imwrite(tmp_path / "a.ome.tif", pixels, description=document, metadata=None)
    attributes, _pixels, said = packed(tmp_path, "a.ome.tif")
    assert said.warnings == ("channels are left out: 2 are described, 1 are there",)
    assert "omero" not in attributes


def test_floats_without_a_window_have_no_display_settings(tmp_path: Path) -> None:
    about = {"axes": "CYX", "Channel": {"Name": ["a", "b"]}}
    pixels = np.zeros((2, 5, 7), np.float32)
    tifffile.imwrite(tmp_path / "a.ome.tif", pixels, metadata=about, ome=True)
    attributes, _pixels, said = packed(tmp_path, "a.ome.tif")
    assert "omero" not in attributes
    assert said.warnings == (
        "channels are left out: NGFF 0.4 wants a display window, and float32 has none",
    )


# --- where planes are -----------------------------------------------------------------------------

_LENGTHS = {"T": 2, "C": 3, "Z": 4, "Q": 2, "R": 3}


def coded(axes: str) -> Any:
    """Planes (Y, X) behind ``axes``, each pixel of which is its plane's coordinate as digits."""
    pixels = np.zeros([_LENGTHS[axis] for axis in axes] + [5, 7], np.uint32)
    for index in np.ndindex(*pixels.shape[:-2]):
        digits = dict(zip(axes, index, strict=True))
        pixels[index] = sum(digits.get(axis, 0) * 10**i for i, axis in enumerate("TCZQR"))
    return pixels


def assert_placed(attributes: dict[str, Any], stored: Any, axes: str) -> None:
    """Each plane is at its own coordinate in the archive's axes."""
    names = [axis["name"] for axis in attributes["multiscales"][0]["axes"]][:-2]
    merged = attributes["decant"].get("merged", {})
    parts = {name: merged.get(name, [[name, length]])
             for name, length in zip(names, stored.shape, strict=False)}  # fmt: skip
    for index in np.ndindex(*stored.shape[:-2]):
        digits: dict[str, int] = {}
        for name, at in zip(names, index, strict=True):
            within = np.unravel_index(at, [length for _axis, length in parts[name]])
            digits |= {axis: int(i) for (axis, _length), i in zip(parts[name], within, strict=True)}
        expected = sum(digits.get(axis.lower(), 0) * 10**i for i, axis in enumerate("TCZQR"))
        assert (stored[index] == expected).all(), (index, axes)


@pytest.mark.parametrize("axes", ["".join(each) for each in itertools.permutations("TCZ")])
def test_each_plane_is_where_ome_xml_says(tmp_path: Path, axes: str) -> None:
    about = {"axes": f"{axes}YX"}
    tifffile.imwrite(tmp_path / "a.ome.tif", coded(axes), metadata=about, ome=True)
    attributes, stored, _said = packed(tmp_path, "a.ome.tif")
    assert stored.shape == (2, 3, 4, 5, 7)
    assert_placed(attributes, stored, axes)


@pytest.mark.parametrize(
    ("axes", "names"),
    [
        ("QTCZ", "tcz"), ("TCQZ", "tcz"), ("TCZQ", "tcz"), ("QRTCZ", "tcz"), ("TQCRZ", "tcz"),
        ("ZCTQ", "tcz"), ("TRQ", None), ("QR", None), ("RTQ", None),
    ],
)  # fmt: skip
def test_axes_that_ngff_has_no_place_for_are_merged(
    tmp_path: Path, axes: str, names: str | None
) -> None:
    pixels = coded(axes)
    about = {"axes": f"{axes}YX"}
    tifffile.imwrite(tmp_path / "a.tif", pixels, metadata=about, photometric="minisblack")
    attributes, stored, _said = packed(tmp_path)
    assert stored.shape[-2:] == (5, 7)
    assert stored.size == pixels.size
    assert len(stored.shape) <= 5
    if names is not None:
        assert "".join(a["name"] for a in attributes["multiscales"][0]["axes"]) == f"{names}yx"
        assert attributes["decant"]["merged"]
        assert_placed(attributes, stored, axes)
