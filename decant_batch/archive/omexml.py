"""What an OME-XML document says of one image: sizes, units, channels.

The document is somebody else's and may be anything: it is read in one pass in which all that is
not needed is let go at once (the planes of a long recording are most of it), and only the four
elements that are left go to ome-types.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from lxml import etree

from decant_batch.archive import units
from decant_batch.archive.model import Channel, Metadata, Spacing

if TYPE_CHECKING:
    from ome_types.model import Image
    from ome_types.model import Pixels as PixelsModel

MAX_XML_NBYTES = 16 << 20
# A UUID goes with the TiffData around it.
_KEPT = ("OME", "Image", "Pixels", "Channel", "UUID", "BinaryOnly")
# The attributes that are needed; an odd one among the others must not cost these.
_ATTRIBUTES = {
    "Image": ("Name",),
    "Pixels": (
        *("DimensionOrder", "Type", "TimeIncrement", "TimeIncrementUnit"),
        *(f"Size{axis}" for axis in "XYZCT"),
        *(f"PhysicalSize{axis}{unit}" for axis in "XYZ" for unit in ("", "Unit")),
    ),
    "Channel": ("Name", "Color"),
}


_MAX_WHY = 300


class NotRead(ValueError):
    """A document that is not read; its message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which image of a document is meant.

    ``image`` counts those of which planes are in this file, ``file`` is the file's name, ``width``
    and ``length`` are those of its pages.
    """

    image: int | None
    file: str
    width: int
    length: int


def read(document: bytes, place: Place) -> Metadata:
    """What the document says of the image at ``place``; nothing, where it only names another file
    that has the metadata (``BinaryOnly``).

    Raises
    ------
    NotRead
        Where it is too long, has a document type (entities), is not well formed, is not what
        ome-types can read, or says nothing of an image of these sizes.
    """
    if len(document) > MAX_XML_NBYTES:
        raise NotRead(f"{len(document)} bytes are more than the {MAX_XML_NBYTES} that are read")
    if b"<!DOCTYPE" in document or b"<!ENTITY" in document or b"\0" in document:
        raise NotRead("it has a document type or entities, which OME-XML has no use for")
    try:
        root, own = _pruned(document, place.file)
        if _is_elsewhere(root):
            return Metadata()
        _strip(root)
        images = zip(_parsed(etree.tostring(root)), own, strict=True)
        return _metadata(_chosen([image for image, is_own in images if is_own], place))
    except NotRead:
        raise
    except (etree.LxmlError, ValueError, TypeError, LookupError, AttributeError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise NotRead(why[:_MAX_WHY]) from error


def _pruned(document: bytes, file: str) -> tuple[etree._Element, list[bool]]:
    """The document with nothing but images, pixels and channels in it, and which images have
    planes in this file.
    """
    own: list[bool] = []
    told, root = 0, None
    events = etree.iterparse(
        BytesIO(document),
        events=("start", "end"),
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        remove_comments=True,
        remove_pis=True,
    )
    for event, element in events:
        name = _name(element)
        root = element if root is None else root
        if event == "start":
            if name == "Image":
                own.append(False)
                told = 0
            continue
        if name == "TiffData" and own:
            told += 1
            own[-1] |= _is_own(element, file, root)
        if name == "Image" and not told:
            own[-1] = True
        parent = element.getparent()
        if name not in _KEPT and parent is not None:
            parent.remove(element)
    return root, own


def _strip(root: etree._Element) -> None:
    """Leave the attributes that are needed, and give each element an ID that the schema allows."""
    for number, element in enumerate(root.iter()):
        name = _name(element)
        kept = {
            key: element.attrib[key] for key in _ATTRIBUTES.get(name, ()) if key in element.attrib
        }
        element.attrib.clear()
        element.attrib.update(kept | ({} if element is root else {"ID": f"{name}:{number}"}))


def _is_elsewhere(root: etree._Element) -> bool:
    return any(_name(each) == "BinaryOnly" for each in root)


def _name(element: etree._Element) -> str:
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _is_own(tiff_data: etree._Element, file: str, root: etree._Element) -> bool:
    """True where planes are said to be in this file (OME-TIFF specification, multi-file sets)."""
    uuid = next((each for each in tiff_data if _name(each) == "UUID"), None)
    if uuid is None:
        return True
    names_us = file == uuid.get("FileName")
    return names_us or bool((uuid.text or "").strip() == root.get("UUID", "").strip())


def _parsed(document: bytes) -> list[Image]:
    # It takes 0.25 s to import, which a command that reads no OME-XML need not wait for.
    from ome_types import from_xml

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of older schemas, and what they lack
        return list(from_xml(document, validate=False).images)


def _chosen(images: list[Image], place: Place) -> Image:
    """The image that is meant: the one by number where its sizes agree, else the first of them."""
    size = (place.width, place.length)
    fitting = [image for image in images if (image.pixels.size_x, image.pixels.size_y) == size]
    if not fitting:
        raise NotRead(f"it has no image of {place.width} x {place.length} pixels in this file")
    named = images[place.image : place.image + 1] if place.image is not None else []
    return next((image for image in named if image in fitting), fitting[0])


def _metadata(image: Image) -> Metadata:
    pixels = image.pixels
    return Metadata(
        name=image.name,
        spacing=dict(_spacing(pixels)),
        channels=tuple(
            Channel(name=channel.name, color=_color(channel.color)) for channel in pixels.channels
        ),
    )


def _spacing(pixels: PixelsModel) -> Iterator[tuple[str, Spacing]]:
    for axis in "zyx":
        value = getattr(pixels, f"physical_size_{axis}")
        unit = getattr(pixels, f"physical_size_{axis}_unit")
        if value is not None:
            yield axis, Spacing(value=float(value), unit=units.space(unit.value))
    if pixels.time_increment is not None:
        unit = units.time(pixels.time_increment_unit.value)
        yield "t", Spacing(value=float(pixels.time_increment), unit=unit)


def _color(color: object) -> str | None:
    """RRGGBB; ome-types' default is white."""
    as_tuple = getattr(color, "as_rgb_tuple", None)
    if as_tuple is None:
        return None
    red, green, blue = as_tuple()[:3]
    return f"{red:02X}{green:02X}{blue:02X}"
