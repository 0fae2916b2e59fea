"""A config from its YAML file, and a line number for everything that is wrong with it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import ValidationError

from decant_batch.batch.config.model import Archive, Cluster, Config
from decant_batch.errors import UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_KEYS = {
    (): tuple(Config.model_fields),
    ("archive",): tuple(Archive.model_fields),
    ("cluster",): tuple(Cluster.model_fields),
}
# What pydantic calls a fault -> what to say of it. {given} is the value in the file.
_WORDS = {
    "missing": "{key} is missing, and has no default; write it",
    "string_type": "{key}: {given} is not text; put it in quotes",
    "bool_type": "{key}: {given} will not do; write true or false",
    "tuple_type": "{key}: {given} is not a list; write it like ['*.tif', '*.tiff']",
    "too_short": "{key}: an empty list; write a pattern, or leave the key out",
    "model_type": "{key}: {given} holds no keys; write it like `cluster: {{workers: 2}}`",
    "literal_error": "{key}: {given} is unknown; write {expected}",
}
_DIGITS = list("-+.0123456789")


class _Loader(yaml.SafeLoader):
    """YAML in which ``2026-03-01``, ``1:30`` and ``010`` stay text: none of them is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0].rpartition(":")[2] in ("bool", "null", "merge")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)\Z"), _DIGITS
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z"),
    _DIGITS,
)


def load(path: Path) -> Config:
    """The config in the YAML file ``path``, every default resolved.

    Raises
    ------
    UsageError
        Where it cannot be read or is wrong: one line per fault, with file, line and what to write.
    """
    node, document = _parsed(path)
    try:
        return Config.model_validate(document, context={"folder": path.absolute().parent})
    except ValidationError as error:
        faults = sorted(
            (_line(node, fault["loc"]), _complaint(fault))
            for fault in error.errors()
            # A default that waits for another key: that key has a fault of its own.
            if fault["type"] != "default_factory_not_called"
        )
        raise UsageError(
            "\n".join(f"{path}:{line}: {complaint}" for line, complaint in faults)
        ) from error


def _parsed(path: Path) -> tuple[yaml.Node, object]:
    """The document as nodes, which know their lines, and as plain values."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; give the path of a config that can be read"
        ) from error
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{path}:1: no keys; write at least `source:` and `destination:`")
        _refuse_duplicates(path, node)
        return node, loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UsageError(f"{where}: {_yaml_complaint(error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count(b"\n", 0, error.position) + 1
        raise UsageError(
            f"{path}:{line}: {error.reason} (byte {error.position}); save it as text in UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}; write plain values, without tags") from error


def _yaml_complaint(error: yaml.MarkedYAMLError) -> str:
    """The parser's words on one line, and what most likely is to be done."""
    said = " ".join(str(part) for part in (error.context, error.problem) if part)
    # A pattern like *.tmp without quotes is an alias to YAML, one like !x a tag.
    if re.search(r"\balias\b|\btag\b|cannot start any token", said):
        return f"{said}; put names and patterns that begin with * ! @ % & in quotes: '*.tmp'"
    return f"{said}; look for a wrong indentation, or an open bracket or quote, up to here"


def _refuse_duplicates(path: Path, top: yaml.Node) -> None:
    """Nothing, where no mapping has a key twice; yaml itself would keep the last and be silent."""
    pending, seen = [top], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:  # an alias, perhaps of what holds it
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                name, line = str(key.value), key.start_mark.line + 1
                if name in lines:
                    raise UsageError(
                        f"{path}:{line}: {name!r} is given twice, first in line {lines[name]}; "
                        "keep one of them"
                    )
                lines[name] = line
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)


def _line(node: yaml.Node, where: Sequence[str | int]) -> int:
    """Line, from 1, of the key or list item at ``where``, or of what would hold it."""
    line = node.start_mark.line + 1
    for part in where:
        if isinstance(node, yaml.MappingNode):
            # The last: a key of its own comes after the same key from a merge (<<).
            found = [pair for pair in node.value if pair[0].value == str(part)][-1:]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            found = [(item, item) for item in node.value[part : part + 1]]
        else:
            found = []
        if not found:
            break
        line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line


def _complaint(fault: ErrorDetails) -> str:
    """One line that says what is wrong with a key and what to write."""
    where, kind, given = fault["loc"], fault["type"], fault["input"]
    key, context = ".".join(map(str, where)), fault.get("ctx", {})
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown(str(where[-1]), tuple(map(str, where[:-1])))
    if given is None:
        return f"{key} has no value; write one, or leave the key out"
    if kind == "value_error":
        return f"{key}: {context['error']}"
    words = _WORDS.get(kind, "{key}: {said}; see configs/workstation.yaml")
    return words.format(
        key=key, given=repr(given), expected=context.get("expected"), said=fault["msg"]
    )


def _unknown(key: str, section: tuple[str, ...]) -> str:
    """What an unknown key was probably meant to be: here, or in another section."""
    what = f"unknown key {key!r}" + (f" in `{section[-1]}:`" if section else "")
    known = _KEYS.get(section, ())
    if near := difflib.get_close_matches(key, known, n=1):
        return f"{what}; did you mean {near[0]!r}?"
    for other, keys in _KEYS.items():
        if near := difflib.get_close_matches(key, keys, n=1):
            place = f"in `{other[-1]}:`" if other else "at the top"
            return f"{what}; did you mean {near[0]!r} {place}?"
    return f"{what}; known are: {', '.join(known)}"
