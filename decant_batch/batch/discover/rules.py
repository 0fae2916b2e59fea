"""What the walk leaves out, and why: hidden names, litter, ``exclude`` and ``include``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from decant_batch.batch.discover.globs import glob_regex, matches, reach_regex
from decant_batch.batch.model import Why

# What systems and servers leave behind, whatever the case: no one's data. The folders among them
# may hold a copy of the whole share (.snapshot, ~snapshot) or what was thrown away.
LITTER = (
    *("Thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "~$*"),
    *("$RECYCLE.BIN/", "System Volume Information/"),
    *(".DS_Store", "._*", ".AppleDouble/", ".Spotlight-V100/", ".Trashes/", ".fseventsd/"),
    *(".TemporaryItems/", ".DocumentRevisions-V100/", ".VolumeIcon.icns"),
    *(".Trash-*/", ".directory", ".nfs*", "lost+found/"),
    *("@eaDir/", "#recycle/", "#snapshot/", ".snapshot/", "~snapshot/", ".zfs/"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """``include``, ``exclude`` and the rest, compiled; ``reach`` is where ``include`` can lead."""

    include: re.Pattern[str]
    reach: re.Pattern[str]
    exclude: re.Pattern[str]
    litter: re.Pattern[str]
    hidden: bool


def make_rules(
    include: Sequence[str], exclude: Sequence[str], *, hidden: bool, litter: bool
) -> Rules:
    """Rules from globs; ``hidden`` and ``litter`` say whether such names are taken."""
    return Rules(
        include=glob_regex(include),
        reach=reach_regex(include),
        exclude=glob_regex(exclude),
        litter=glob_regex(() if litter else LITTER, ignore_case=True),
        hidden=hidden,
    )


def is_included(rules: Rules, relpath: str, *, is_folder: bool) -> bool:
    """Whether ``include`` matches; for a folder, whether it takes all that is in it."""
    return matches(rules.include, relpath, is_folder=is_folder)


def left_out(rules: Rules, relpath: str, *, is_folder: bool, included: bool) -> Why | None:
    """Why a file or folder is left out, or None; ``included`` says that all of its folder is in."""
    name = relpath.rpartition("/")[2]
    if matches(rules.litter, name, is_folder=is_folder):
        return "litter"
    if not rules.hidden and name.startswith("."):
        return "hidden"
    if matches(rules.exclude, relpath, is_folder=is_folder):
        return "excluded"
    if included or is_included(rules, relpath, is_folder=is_folder):
        return None
    if is_folder and matches(rules.reach, relpath, is_folder=True):
        return None
    return "not-included"
