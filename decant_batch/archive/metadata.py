"""What a TIFF says of its pixels: sizes, units, channels, name. The bytes never depend on it.

Each program writes it in its own place; one file may have several. Of each field the first that is
said counts, in this order: OME-XML, Micro-Manager, MetaMorph (UIC tags, then MetaXpress' XML),
LSM, ImageJ, and last the resolution tags of any TIFF (TIFF 6.0 section 8).

What cannot be read costs that program's word and gives a warning. Nothing here makes a source fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from decant_batch.archive import omexml, units
from decant_batch.archive.layout import AS_IT_STANDS, PARSER_ERRORS
from decant_batch.archive.model import Channel, Layout, Metadata, Spacing
from decant_batch.archive.omexml import MAX_XML_NBYTES, Place

_MAX_TEXT = 1000
_MAX_CHANNELS = 1000
# ResolutionUnit -> micrometers (TIFF 6.0 section 8: 2 is inch, 3 is centimeter).
_RESOLUTION_UNITS = {2: 25_400.0, 3: 10_000.0}


def read(path: Path, found: Layout) -> Metadata:
    """What the TIFF at ``path`` says of the pages of ``found``.

    Raises
    ------
    OSError
        Where the file cannot be read.
    """
    # tifffile divides fractions whose denominator is 0.
    with tifffile.TiffFile(path, **AS_IT_STANDS) as tiff, np.errstate(all="ignore"):
        said, warnings = [], []
        for name, is_there, reader in _READERS:
            try:
                if is_there(tiff):
                    said.append(reader(tiff, found))
            except PARSER_ERRORS as error:
                why = str(error) or type(error).__name__
                warnings.append(f"{name} metadata is left out: {why}"[:_MAX_TEXT])
        return _fitting(_first(said), found, tuple(warnings))


def _first(said: Sequence[Metadata]) -> Metadata:
    """Of each field the first that was said."""
    spacing: dict[str, Spacing] = {}
    for each in reversed(said):
        spacing |= {axis: step for axis, step in each.spacing.items() if _is_length(step.value)}
    return Metadata(
        name=next((_clean(each.name) for each in said if each.name), None),
        spacing=spacing,
        channels=_channels(said),
        ome_xml=next((each.ome_xml for each in said if each.ome_xml), None),
    )


def _channels(said: Sequence[Metadata]) -> tuple[Channel, ...]:
    """Channels of those that agree with the first in their number, field by field."""
    told = [each.channels for each in said if each.channels]
    told = [channels for channels in told if len(channels) == len(told[0])]
    return tuple(
        Channel(
            name=next((_clean(each.name) for each in same if each.name), None),
            color=next((each.color for each in same if each.color), None),
            window=next((each.window for each in same if _is_window(each.window)), None),
        )
        for same in zip(*told, strict=True)
    )


def _fitting(said: Metadata, found: Layout, warnings: tuple[str, ...]) -> Metadata:
    """What is said of axes that are there; an axis made of several has no one spacing."""
    lengths = dict(zip(found.axes, found.leading, strict=True))
    channels, count = said.channels, lengths.get("c", 1)
    if channels and (len(channels) != count or "c" in found.merged):
        warnings += (f"channels are left out: {len(channels)} are described, {count} are there",)
        channels = ()
    axes = {"y", "x", *lengths} - set(found.merged)
    return Metadata(
        name=said.name,
        spacing={axis: step for axis, step in said.spacing.items() if axis in axes},
        channels=channels if any(each != Channel() for each in channels) else (),
        ome_xml=said.ome_xml,
        warnings=warnings,
    )


def _is_length(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _is_window(window: tuple[float, float] | None) -> bool:
    return window is not None and all(map(math.isfinite, window)) and window[0] < window[1]


def _clean(text: Any) -> str | None:  # noqa: ANN401 - whatever a program wrote
    """Text that JSON and people can read; None for nothing."""
    written = str(text).encode("utf-8", "replace").decode().strip("\0 \r\n\t")
    return written[:_MAX_TEXT] or None


def _number(value: Any) -> float:  # noqa: ANN401 - whatever a program wrote
    """A number, or NaN for what is none; a fraction may come as two integers."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[0] / value[1] if value[1] else math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _steps(unit: str | None, **values: Any) -> dict[str, Spacing]:  # noqa: ANN401
    return {
        axis: Spacing(value=_number(value), unit=unit)
        for axis, value in values.items()
        if value is not None
    }


def _rgb(red: Any, green: Any, blue: Any) -> str:  # noqa: ANN401 - integers of any kind
    return "".join(f"{int(each) & 0xFF:02X}" for each in (red, green, blue))


# --- one reader for each program: a TiffFile and its Layout -> what is said -----------------------


def _ome(tiff: Any, found: Layout) -> Metadata:  # noqa: ANN401 - a TiffFile
    """OME-XML in the first page's ImageDescription (OME-TIFF specification)."""
    tag = tiff.pages.first.tags[270]
    if tag.count > MAX_XML_NBYTES:
        raise ValueError(f"{tag.count} bytes are more than the {MAX_XML_NBYTES} that are read")
    tiff.filehandle.seek(tag.valueoffset)
    document = tiff.filehandle.read(tag.count).rstrip(b"\0 \r\n\t")
    length, width = found.geometry.shape[:2]
    place = Place(
        image=found.image, file=Path(tiff.filehandle.path).name, width=width, length=length
    )
    return _with_document(omexml.read(document, place), document)


def _with_document(said: Metadata, document: bytes) -> Metadata:
    return Metadata(name=said.name, spacing=said.spacing, channels=said.channels, ome_xml=document)


def _micromanager(tiff: Any, _found: Layout) -> Metadata:  # noqa: ANN401 - a TiffFile
    """Micro-Manager's summary, in the file's header (1.4, 2.0, NDTiff)."""
    summary = tifffile.read_micromanager_metadata(tiff.filehandle, {"Summary"})["Summary"]
    names = _listed(summary.get("ChNames"))
    colors = [int(each) for each in _listed(summary.get("ChColors"))]
    count = max(len(names), len(colors))
    lows, highs = (_listed(summary.get(f"ChContrast{limit}")) for limit in ("Min", "Max"))
    z_um = abs(_number(summary.get("z-step_um")))
    # The size of a pixel differs from page to page where the objective was changed.
    page = tiff.pages.first.tags.valueof(51123, default={})
    size_um = summary.get("PixelSize_um") or page.get("PixelSizeUm")
    return Metadata(
        spacing=_steps("micrometer", x=size_um, y=size_um, z=z_um)
        | _steps("millisecond", t=summary.get("Interval_ms")),
        channels=tuple(
            Channel(
                name=_at(names, i),
                color=None if _at(colors, i) is None else f"{colors[i] & 0xFFFFFF:06X}",
                window=_window(_at(lows, i), _at(highs, i)),
            )
            for i in range(min(count, _MAX_CHANNELS))
        ),
    )


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return list(value) if isinstance(value, (list, tuple)) else []


def _at(values: Sequence[Any], i: int) -> Any:  # noqa: ANN401
    return values[i] if i < len(values) else None


def _window(low: Any, high: Any) -> tuple[float, float]:  # noqa: ANN401
    return _number(low), _number(high)


def _stk(tiff: Any, _found: Layout) -> Metadata:  # noqa: ANN401 - a TiffFile
    """MetaMorph's UIC tags: calibration if it is switched on, distance of planes, name."""
    said = tiff.stk_metadata
    spacing: dict[str, Spacing] = {}
    if said.get("SpatialCalibration"):
        unit = units.space(str(said.get("CalibrationUnits", "")))
        # From each plane to the next; the last one's says nothing. Where they differ there is no
        # one spacing.
        distances = set(np.abs(np.ravel(said.get("ZDistance", ()))[:-1]).tolist())
        z = distances.pop() if len(distances) == 1 else None
        spacing = _steps(unit, x=said.get("XCalibration"), y=said.get("YCalibration"), z=z)
    return Metadata(name=said.get("Name"), spacing=spacing)


def _metaseries(tiff: Any, _found: Layout) -> Metadata:  # noqa: ANN401 - a TiffFile
    """MetaXpress' XML in ImageDescription."""
    plane = tiff.metaseries_metadata.get("PlaneInfo", {})
    spacing: dict[str, Spacing] = {}
    if plane.get("spatial-calibration-state"):
        unit = units.space(str(plane.get("spatial-calibration-units", "")))
        x, y = (plane.get(f"spatial-calibration-{axis}") for axis in "xy")
        spacing = _steps(unit, x=x, y=y)
    name = plane.get("_IllumSetting_")
    return Metadata(spacing=spacing, channels=(Channel(name=name),) if name else ())


def _lsm(tiff: Any, _found: Layout) -> Metadata:  # noqa: ANN401 - a TiffFile
    """Zeiss' CZ_LSMINFO: voxel sizes in meters, the interval in seconds, colours and names."""
    said = tiff.lsm_metadata
    voxel = {axis: said[f"VoxelSize{axis.upper()}"] * 1e6 for axis in "xyz"}
    spacing = _steps("micrometer", **voxel)
    spacing |= _steps("second", t=said.get("TimeIntervall"))
    colors = said.get("ChannelColors") or {}
    names, shades = (_listed(colors.get(key)) for key in ("ColorNames", "Colors"))
    return Metadata(
        name=said.get("ScanInformation", {}).get("Name"),
        spacing=spacing,
        channels=tuple(
            Channel(name=name, color=_rgb(*shade[:3]))
            for name, shade in zip(names, shades, strict=True)
        ),
    )


def _imagej(tiff: Any, found: Layout) -> Metadata:  # noqa: ANN401 - a TiffFile
    """ImageJ's description and its tag 50839: calibration, display ranges, lookup tables."""
    said = tiff.imagej_metadata or {}
    unit = units.space(str(said.get("unit", "")))
    spacing = _steps(unit, z=said.get("spacing"))
    if "unit" in said:
        spacing |= _steps(unit, x=_step(tiff, 282), y=_step(tiff, 283))
    interval_s = said.get("finterval") or 1.0 / (_number(said.get("fps")) or math.nan)
    spacing |= _steps("second", t=interval_s)
    return Metadata(spacing=spacing, channels=tuple(_imagej_channels(said, found)))


def _step(tiff: Any, code: int) -> float | None:  # noqa: ANN401 - a TiffFile
    """The size of a pixel from XResolution or YResolution, in its unit."""
    value = tiff.pages.first.tags.valueof(code)
    pixels_per_unit = _number(value) if value is not None else 0.0
    return 1.0 / pixels_per_unit if pixels_per_unit else None


def _imagej_channels(said: Mapping[str, Any], found: Layout) -> Iterator[Channel]:
    ranges = np.ravel(said.get("Ranges", ())).tolist()
    if not ranges and "min" in said and "max" in said:
        ranges = [said["min"], said["max"]]
    tables = said.get("LUTs", ())
    tables = [tables] if isinstance(tables, np.ndarray) else list(tables)
    labels = _listed(said.get("Labels"))
    count = dict(zip(found.axes, found.leading, strict=True)).get("c", 1)
    for i in range(count):
        limits = ranges[2 * i : 2 * i + 2] if len(ranges) == 2 * count else []
        table = tables[i] if len(tables) == count else None
        yield Channel(
            # The labels are the planes': only where planes are channels do they name those.
            name=_at(labels, i) if len(labels) == count == found.page_count > 1 else None,
            color=None if table is None else _ramp(table),
            window=_window(*limits) if limits else None,
        )


def _ramp(table: Any) -> str | None:  # noqa: ANN401 - (3, 256) uint8
    """The colour that a lookup table rises to from black, if it is such a ramp."""
    table = np.asarray(table)
    return _rgb(*table[:, -1]) if table.shape == (3, 256) and not table[:, 0].any() else None


def _tags(tiff: Any, _found: Layout) -> Metadata:  # noqa: ANN401 - a TiffFile
    """The resolution tags, where they have a unit."""
    factor = _RESOLUTION_UNITS[int(tiff.pages.first.tags.valueof(296, default=2))]
    x, y = (_step(tiff, code) for code in (282, 283))
    return Metadata(spacing=_steps("micrometer", x=x and x * factor, y=y and y * factor))


def _has_resolution(tiff: Any) -> bool:  # noqa: ANN401 - a TiffFile
    tags = tiff.pages.first.tags
    # ImageJ writes its own unit beside tags whose unit is none.
    return 282 in tags and tags.valueof(296, default=2) in _RESOLUTION_UNITS


_Reader = tuple[str, Callable[[Any], bool], Callable[[Any, Layout], Metadata]]
_READERS: tuple[_Reader, ...] = (
    ("OME-XML", lambda tiff: bool(tiff.is_ome), _ome),
    ("Micro-Manager", lambda tiff: bool(tiff.is_micromanager), _micromanager),
    ("MetaMorph", lambda tiff: bool(tiff.is_stk), _stk),
    ("MetaXpress", lambda tiff: bool(tiff.is_metaseries), _metaseries),
    ("LSM", lambda tiff: bool(tiff.is_lsm), _lsm),
    ("ImageJ", lambda tiff: bool(tiff.is_imagej), _imagej),
    ("resolution", _has_resolution, _tags),
)
