"""Codecs by configuration: numcodecs does the work, this module only names and bounds it."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numcodecs
import numcodecs.blosc
import numpy as np
import numpy.typing as npt
from numcodecs.abc import Codec
from numcodecs.errors import UnknownCodecError

from decant_batch.errors import UsageError

# Blosc's own threads would make memory depend on the machine; a job's threads are in its plan.
numcodecs.blosc.use_threads = False

HUSK_COMPRESSOR: Mapping[str, Any] = {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 0}
_SHUFFLES = {0: "noshuffle", 1: "byteshuffle", 2: "bitshuffle", -1: "autoshuffle"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """Filters in the order of encoding, then the compressor, as a ``.zarray`` lists them."""

    compressor: Codec | None
    filters: tuple[Codec, ...]


def coding(compressor: Mapping[str, Any] | None, filters: Sequence[Mapping[str, Any]]) -> Coding:
    """Codecs from their configurations.

    Raises
    ------
    UsageError
        Where numcodecs does not know one of them.
    """
    return Coding(
        compressor=None if compressor is None else _codec(compressor),
        filters=tuple(_codec(config) for config in filters),
    )


def config(codec: Codec) -> dict[str, Any]:
    """JSON configuration of a codec, as it stands in ``.zarray``."""
    return dict(codec.get_config())


def encode(values: npt.NDArray[np.generic], using: Coding) -> bytes | memoryview:
    """One chunk's bytes from its values (a contiguous array of the chunk's shape); a copy."""
    encoded: Any = values
    for codec in using.filters:
        encoded = codec.encode(encoded)
    if using.compressor is not None:
        encoded = using.compressor.encode(encoded)
    flat = _flat(encoded)
    # Some codecs hand their input on: the caller uses that buffer again.
    return bytes(flat) if np.may_share_memory(np.frombuffer(flat, np.uint8), values) else flat


def decode(chunk: bytes, using: Coding, out: npt.NDArray[np.generic]) -> bool:
    """Fill ``out`` with the chunk's values; False where the chunk has another number of bytes.

    What numcodecs raises for a damaged chunk passes through: see ``DECODE_ERRORS``.
    """
    if using.compressor is not None:
        if using.compressor.codec_id == "blosc" and not _is_whole_blosc(chunk):
            return False
        if not using.filters:
            return _decode_into(chunk, using.compressor, out)
    decoded: Any = chunk if using.compressor is None else using.compressor.decode(chunk)
    for codec in reversed(using.filters):
        decoded = codec.decode(decoded)
    return _copied(decoded, out)


# What codecs raise for bytes that are not theirs: they have no common base.
DECODE_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    OSError,
    EOFError,
    MemoryError,
    SystemError,
    ArithmeticError,
    zlib.error,
    lzma.LZMAError,
)


def _decode_into(chunk: bytes, codec: Codec, out: npt.NDArray[np.generic]) -> bool:
    """Decode straight into ``out`` where the codec says its size, else through a copy."""
    if codec.codec_id != "blosc":
        return _copied(codec.decode(chunk), out)
    # The header is believed only if it promises just what fits: a lying one costs no memory.
    if int.from_bytes(chunk[4:8], "little") != out.nbytes:
        return False
    codec.decode(chunk, out=out)
    return True


def _is_whole_blosc(chunk: bytes) -> bool:
    """True where a chunk is as long as its header says: c-blosc would read on beyond its end.

    Blosc 1 header: version, versionlz, flags, typesize (u1 each), nbytes, blocksize, cbytes (u4).
    """
    return len(chunk) >= 16 and int.from_bytes(chunk[12:16], "little") == len(chunk)


def _copied(decoded: Any, out: npt.NDArray[np.generic]) -> bool:  # noqa: ANN401 - any buffer
    flat = _flat(decoded)
    if flat.nbytes != out.nbytes:
        return False
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(flat, np.uint8)
    return True


def _flat(buffer: Any) -> memoryview:  # noqa: ANN401 - any buffer
    """The bytes of any contiguous buffer, without a copy."""
    return memoryview(np.ascontiguousarray(buffer).reshape(-1).view(np.uint8).data)


def encoded_bound(nbytes: int) -> int:
    """Upper bound of a chunk's encoded bytes, for any codec that does not blow data up.

    Blosc adds 16 bytes at most; DEFLATE stores incompressible data with 5 bytes per 16 KiB.
    """
    return nbytes + nbytes // 256 + 4096


def describe(compressor: Mapping[str, Any] | None, filters: Sequence[Mapping[str, Any]]) -> str:
    """Short text for the manifest's ``pixel_codec``, like ``blosc:zstd:byteshuffle:clevel=5``."""
    if compressor is None:
        text = "none"
    elif compressor["id"] == "blosc":
        full = {"shuffle": 1, "clevel": 5, "cname": "lz4", **compressor}
        shuffle = _SHUFFLES.get(full["shuffle"], str(full["shuffle"]))
        text = f"blosc:{full['cname']}:{shuffle}:clevel={full['clevel']}"
    else:
        rest = [f"{key}={value}" for key, value in sorted(compressor.items()) if key != "id"]
        text = ":".join([str(compressor["id"]), *rest])
    return "+".join([*(str(config["id"]) for config in filters), text])


# Decoding a pickle runs whatever code it names; nothing else that numcodecs knows does.
_REFUSED = frozenset({"pickle"})


def _codec(config: Mapping[str, Any]) -> Codec:
    if config.get("id") in _REFUSED:
        raise UsageError(f"codec {config['id']!r}: refused, its data could run any program")
    try:
        found: Codec = numcodecs.get_codec(dict(config))
    except (ValueError, TypeError, KeyError) as error:
        unknown = isinstance(error, UnknownCodecError)
        why = "not known to numcodecs" if unknown else str(error)
        raise UsageError(
            f"codec {dict(config)!r}: {why}; numcodecs' documentation lists the codecs and their"
            " options"
        ) from error
    return found
