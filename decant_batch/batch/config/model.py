"""The keys of a config with their defaults, and what is refused."""

from __future__ import annotations

import json
import lzma
import os
import zlib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numcodecs
import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationInfo,
    field_validator,
    model_validator,
)

from decant_batch.archive.model import ContainerKind, Method, Pyramid, Recipe
from decant_batch.batch import series
from decant_batch.batch.config.machine import usable
from decant_batch.batch.config.quantities import duration, size
from decant_batch.batch.guess import Guess
from decant_batch.batch.model import SeriesLayout
from decant_batch.batch.series import Rule

# Of the memory the process may use, what goes to workers; the rest is the driver's and the
# system's.
_WORKERS_SHARE = 0.8
# An idle worker alone takes 65 to 80 MiB: better few that can hold large pages than many starved.
_WORTH_A_WORKER = 1 << 30
_LEAST_WORKER = 256 << 20
_AUTO = 0  # stands for "auto" until the cores and the memory have been looked up
_RECIPE = Recipe()
_PYRAMID = Pyramid()
_MOST_LEVELS = 30  # halves a plane of any size to one pixel
# numcodecs takes most options without a look; what comes of them later has no common base.
_CODEC_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,
    OSError,
    zlib.error,
    lzma.LZMAError,
)


def _memory(raw: object) -> int:
    if raw == "auto":
        return _AUTO
    nbytes = size(raw)
    if nbytes < _LEAST_WORKER:
        raise ValueError(f"{raw!r} is too little for a worker; write it with its unit, like 2GiB")
    return nbytes


def _count(raw: object) -> int:
    if raw == "auto":
        return _AUTO
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < 1:
        raise ValueError(f"{raw!r} will not do; write a whole number of at least 1, or auto")
    return raw


def _kind(raw: object) -> object:
    if raw != "local":
        raise ValueError(f"{raw!r} is not built yet: use kind: local")
    return raw


def _path(raw: object, info: ValidationInfo) -> Path:
    """Absolute path; a relative one starts at the config's folder."""
    text = str(raw) if isinstance(raw, str | Path) else ""
    if not text.strip() or "\0" in text:
        raise ValueError(f"{raw!r} is not a path; write one, in quotes if it looks like a number")
    if "://" in text:
        raise ValueError(f"{raw!r} is an address; mount the share and write the folder's path")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{raw!r}: {error}; write the path out") from error
    path = (info.context or {}).get("folder", Path.cwd()) / path
    # After a symlink ".." is not the folder before it: only the system can say which it is.
    return Path(os.path.realpath(path)) if ".." in path.parts else path


def _glob(pattern: str) -> str:
    if "\\" in pattern:
        raise ValueError(f"{pattern!r}: write / between folders, ? for a backslash in a name")
    if pattern.startswith("!"):
        raise ValueError(f"{pattern!r}: patterns are not negated; use both include and exclude")
    parts = pattern.removeprefix("/").removesuffix("/").split("/")
    if {"", ".", ".."} & set(parts):
        raise ValueError(f"{pattern!r} matches nothing; write it from the source on, like raw/**")
    return pattern


def _codec(raw: object) -> object:
    """The configuration as it came, once numcodecs has made and used that codec."""
    if not isinstance(raw, dict) or "id" not in raw:
        raise ValueError(f"{raw!r} is not a codec; write it like {{id: zstd, level: 5}}")
    try:
        _try_out(numcodecs.get_codec(raw))
    except _CODEC_ERRORS as error:
        raise ValueError(
            f"numcodecs cannot use {raw!r}: {error}; its documentation lists codecs and options"
        ) from error
    return raw


def _try_out(codec: Any) -> None:  # noqa: ANN401 - numcodecs has no annotations to rely on
    """Code a few samples, so that a bad level is found now and not at the first source."""
    *others, last = (np.arange(64, dtype=dtype) for dtype in ("<u2", "u1", "<f4"))
    for samples in others:
        try:
            codec.decode(codec.encode(samples))
        except _CODEC_ERRORS:
            continue  # some codecs take nothing but floats
        return
    codec.decode(codec.encode(last))


def _within(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _beside_the_archives(known: dict[str, Any]) -> Path:
    # Before pydantic 2.13 a default is made also where the destination was refused.
    return Path(known.get("destination", "")) / ".decant-batch" / "ledger.sqlite"


Seconds = Annotated[float, BeforeValidator(duration)]
Count = Annotated[int, BeforeValidator(_count)]
WorkerMemory = Annotated[int, BeforeValidator(_memory)]
AbsolutePath = Annotated[Path, BeforeValidator(_path)]
Glob = Annotated[str, AfterValidator(_glob)]
Codec = Annotated[dict[str, Any], BeforeValidator(_codec)]


class Section(BaseModel):
    """A mapping in the config; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def _resolve(self, name: str, value: object) -> None:
        """Put a value where ``auto`` stood: the model is frozen only for everybody else."""
        object.__setattr__(self, name, value)


def _levels(raw: object) -> object:
    return None if raw == "auto" else raw


class Levels(Section):
    """Levels for viewers below the pixels themselves; ``levels: auto`` goes by ``min_size``."""

    levels: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=_MOST_LEVELS)] | None, BeforeValidator(_levels)
    ] = None
    min_size: Annotated[int, Field(strict=True, ge=1)] = _PYRAMID.min_size
    method: Method = _PYRAMID.method


class SeriesRule(Section):
    """Sources that are one series: ``match`` on their path, and which of its groups are axes.

    Or ``auto: true``: those whose names differ in numbers only.
    """

    match: str | None = None
    auto: StrictBool = False
    axes: tuple[str, ...] | None = None
    archive: str | None = None
    layout: SeriesLayout = "auto"

    @model_validator(mode="after")
    def _compiled(self) -> Self:
        self.rule()
        return self

    def rule(self) -> Rule | Guess:
        """The rule, compiled."""
        if self.auto:
            if (self.match, self.axes, self.archive) != (None, None, None):
                raise ValueError("auto: true takes no match, axes or archive; write two rules")
            return Guess(layout=self.layout)
        if self.match is None:
            raise ValueError("match is missing; write it, or `auto: true` to have series guessed")
        return series.rule(self.match, self.axes, self.archive, self.layout)


def _rules(raw: object) -> object:
    """The rules; ``series: auto`` is short for the one that guesses."""
    return [{"auto": True}] if raw == "auto" else raw


class Archive(Section):
    """How archives are written. ``threads`` encode at once within one worker."""

    container: ContainerKind = _RECIPE.container
    codec: Codec | None = Field(
        default_factory=lambda: dict(_RECIPE.compressor) if _RECIPE.compressor else None
    )
    filters: tuple[Codec, ...] = ()
    threads: Count = _AUTO
    pyramid: Levels | None = None


class Cluster(Section):
    """Where the work is done: how many workers, and the bytes of memory each is allowed."""

    kind: Annotated[Literal["local"], BeforeValidator(_kind)] = "local"
    workers: Count = _AUTO
    memory: WorkerMemory = _AUTO

    @model_validator(mode="after")
    def _resolved(self) -> Self:
        if _AUTO in (self.workers, self.memory):
            here = usable()
            allowed_bytes = int(here.memory_bytes * _WORKERS_SHARE)
            fitting = allowed_bytes // (self.memory or _WORTH_A_WORKER)
            self._resolve("workers", self.workers or max(1, min(here.cores, fitting)))
            self._resolve("memory", self.memory or allowed_bytes // self.workers)
        return self


class Config(Section):
    """One share and what is to be made of it; every default is resolved.

    Paths are absolute. ``include`` and ``exclude`` are globs on the path relative to the source
    (``discover.walk`` says how they match); ``settle`` is in seconds, ``cluster.memory`` in bytes
    per worker.
    """

    source: AbsolutePath
    destination: AbsolutePath
    ledger: AbsolutePath = Field(default_factory=_beside_the_archives)
    include: Annotated[tuple[Glob, ...], Field(min_length=1)] = ("**",)
    exclude: tuple[Glob, ...] = ()
    hidden: StrictBool = False
    litter: StrictBool = False
    others: Literal["report", "verbatim"] = "report"
    settle: Seconds = 600.0
    series: Annotated[tuple[SeriesRule, ...], BeforeValidator(_rules)] = ()
    archive: Archive = Field(default_factory=Archive)
    cluster: Cluster = Field(default_factory=Cluster)

    @field_validator("destination")
    @classmethod
    def _apart(cls, destination: Path, info: ValidationInfo) -> Path:
        source = info.data.get("source")
        if source is not None and _within(source, destination):
            relation = "is" if _within(destination, source) else "holds"
            raise ValueError(f"{destination} {relation} the source; write another folder")
        return destination

    @field_validator("ledger")
    @classmethod
    def _outside(cls, ledger: Path, info: ValidationInfo) -> Path:
        source, destination = info.data.get("source"), info.data.get("destination")
        for folder in (source, destination):
            if folder is not None and _within(folder, ledger):
                raise ValueError(f"{ledger} is a folder; write the path of a file")
        # The ledger's folder is not walked: among the sources it would hide its neighbours.
        if source and destination and _within(ledger, source) and not _within(ledger, destination):
            raise ValueError(f"{ledger} is in the source, which is only read; write another place")
        return ledger

    @model_validator(mode="after")
    def _threads(self) -> Self:
        if self.archive.threads == _AUTO:
            threads = max(1, usable().cores // self.cluster.workers)
            self._resolve("archive", self.archive.model_copy(update={"threads": threads}))
        return self

    @property
    def rules(self) -> tuple[Rule | Guess, ...]:
        """Which sources are series; the first that matches counts."""
        return tuple(each.rule() for each in self.series)

    @property
    def recipe(self) -> Recipe:
        """How archives are written, for ``archive.pack``."""
        return Recipe(
            container=self.archive.container,
            compressor=self.archive.codec,
            filters=self.archive.filters,
            threads=self.archive.threads,
            pyramid=Pyramid(**dict(levels)) if (levels := self.archive.pyramid) else None,
        )

    def as_json(self) -> str:
        """The whole config as one line of ASCII JSON, for the ledger.

        Bytes in paths that are not UTF-8 are surrogate-escaped.
        """
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)
