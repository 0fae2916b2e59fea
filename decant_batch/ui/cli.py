"""The command line: parse, call one function of the library, print, return a code.

What is heavy (dask, tifffile, rich) is imported inside the command that needs it, so that
``--help`` and ``inspect`` answer at once. Results go to stdout; progress and errors to stderr.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from decant_batch import __version__
from decant_batch.errors import ArchiveDamaged, DecantError, UsageError
from decant_batch.ui.quantities import printable
from decant_batch.ui.terminal import complain, escape_unprintable, say

if TYPE_CHECKING:
    from decant_batch.batch.model import Summary
    from decant_batch.batch.preview import Planned

EXIT_CODES = """\
\b
Exit codes:
  0    all settled: every source is archived or reported, or is still being
       written and left for the next run; every archive asked for is intact
  1    some sources failed, and the report and `status` say which and what to do;
       or an original was not restored because something stands at its place
  2    the command line or the config is wrong, or what it names is not there
  3    another run holds the ledger
  4    an archive is damaged
  5    the destination or the ledger cannot be used (full, read-only, too new)
  130  interrupted; what was finished is kept
"""
_DONE, _FAILED, _INTERRUPTED = 0, 1, 130
_UNUSABLE = 5
_INTERRUPTED_TEXT = "interrupted; what was finished is kept, run again to go on"
_REPAIR = "take it from a backup, or move it away and pack its source again"
# Of several archives' codes the one to return: damage outweighs everything.
_FROM_BEST_TO_WORST = (0, 2, 1, 3, 5, 4)


def _epilog(*examples: str) -> str:
    shown = "\n".join(f"  decant-batch {example}" for example in examples)
    return f"\b\nExample:\n{shown}\n\n{EXIT_CODES}"


def _line_of(error: DecantError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror or error}"
    return f"{error}; {_REPAIR}" if isinstance(error, ArchiveDamaged) else str(error)


def _code_of(error: DecantError | OSError) -> int:
    # The disk or the permissions, not a bug that a traceback would explain to whoever reads it.
    return _UNUSABLE if isinstance(error, OSError) else error.exit_code


class _Guarded(TyperGroup):
    """The commands, with every purposeful error turned into one line and its exit code."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run a command; see EXIT_CODES for what it ends with."""
        escape_unprintable(sys.stdout, sys.stderr)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            complain(_INTERRUPTED_TEXT)
            raise typer.Exit(_INTERRUPTED) from error
        except (DecantError, OSError) as error:
            # A config may have several faults; what others say is one line, whatever names hold.
            several = isinstance(error, UsageError)
            for line in _line_of(error).split("\n") if several else [_line_of(error)]:
                complain(line)
            raise typer.Exit(_code_of(error)) from error


app = typer.Typer(
    name="decant-batch",
    cls=_Guarded,
    help="Packs a share of TIFFs into verified, byte-exact OME-Zarr archives, unattended.",
    epilog=_epilog("demo demo-share", "run demo-share/decant.yaml"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The YAML config of the share.")]
Archives = Annotated[
    list[Path],
    typer.Argument(metavar="ARCHIVE", help="NAME.zarr.zip or NAME.zarr."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads that decode at once.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"decant-batch {__version__}")
        raise typer.Exit(_DONE)


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command(
    short_help="Pack what is new or changed on the share.",
    epilog=_epilog("run demo-share/decant.yaml"),
)
def run(config: Config, *, as_json: Json = False, quiet: Quiet = False) -> None:
    """Pack what is new or changed on the share; verify and publish each archive.

    What earlier runs settled is not opened. Interrupt it at any time: nothing half-written is
    ever published, and the next run goes on where this one stopped.
    """
    summary = _run(config, quiet=quiet or as_json, show=_show_json if as_json else _show_text)
    raise typer.Exit(run_code(summary))


@app.command(
    short_help="Show what a run would do; nothing is written.",
    epilog=_epilog("plan demo-share/decant.yaml", "plan demo-share/decant.yaml --files"),
)
def plan(
    config: Config,
    *,
    files: Annotated[bool, typer.Option("--files", help="Also list every source.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a run would do: modes, bytes, memory, clashes of names. Nothing is written."""
    from decant_batch.batch.config import load
    from decant_batch.batch.preview import preview
    from decant_batch.ui import forecast

    listed: list[dict[str, Any]] = []
    items = preview(load(config))
    if files:
        items = _each_listed(items, listed) if as_json else _each_shown(items)
    expected = forecast.forecast(items)
    if as_json:
        _say_json(forecast.forecast_values(expected) | ({"files": listed} if files else {}))
    else:
        say(forecast.forecast_text(expected))
    raise typer.Exit(_FAILED if expected.troubles else _DONE)


@app.command(
    short_help="Show where every source stands.",
    epilog=_epilog("status demo-share/decant.yaml", "status demo-share/decant.yaml --files"),
)
def status(
    config: Config,
    *,
    files: Annotated[bool, typer.Option("--files", help="Also list every source.")] = False,
    as_json: Json = False,
) -> None:
    """Show where every source stands, from the ledger alone: nothing else is opened."""
    from decant_batch.batch.config import load
    from decant_batch.ui import status as standing

    loaded = load(config)
    now = standing.status_of(loaded)
    if as_json:
        entries = {"files": list(standing.listed(loaded))} if files else {}
        _say_json(standing.status_values(now) | entries)
    else:
        heard = not files or all(
            say(standing.listed_line(each)) for each in standing.listed(loaded)
        )
        if heard:
            say(standing.status_text(now))
    raise typer.Exit(_FAILED if now.trouble_count else _DONE)


@app.command(
    short_help="Rebuild every original inside archives and compare.",
    epilog=_epilog("verify 'demo-share/archive/slides/overview planar.tif.zarr.zip'"),
)
def verify(archives: Archives, *, threads: Threads = 1, as_json: Json = False) -> None:
    """Rebuild every original inside the archives and compare it with its recorded sha256.

    Nothing is written. All archives are looked at, also after one was found damaged.
    """
    from decant_batch import archive as library
    from decant_batch.ui.inspection import damage_text, verified_text

    def act(archive: Path) -> dict[str, Any]:
        originals = library.verify(archive, threads=threads)
        text = verified_text(archive, originals)
        if text and not as_json:
            say(text)
        entry = {"originals": [asdict(each) for each in originals]}
        damage = damage_text(archive, originals)
        return {**entry, "error": damage and f"{damage}; {_REPAIR}"}

    raise typer.Exit(_for_each(archives, act, as_json=as_json))


@app.command(
    short_help="Write originals back, byte for byte.",
    epilog=_epilog("restore 'demo-share/archive/slides/overview planar.tif.zarr.zip' -o originals"),
)
def restore(
    archives: Archives,
    *,
    directory: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where originals are written.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    member: Annotated[
        list[str] | None,
        typer.Option("--member", metavar="GLOB", help="Of a series, only these; may be repeated."),
    ] = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Write the originals back, byte for byte, with their dates and permissions.

    Each goes to its recorded path under DIR. Nothing that is there is replaced without --force.
    """
    from decant_batch import archive as library

    _refuse_two_at_one_place(archives, member or None)

    def act(archive: Path) -> dict[str, Any]:
        paths = library.restore(
            archive, directory, force=force, members=member or None, threads=threads
        )
        if not as_json:
            for path in paths:
                say(f"restored  {printable(str(path))}")
        return {"restored": [str(path) for path in paths]}

    raise typer.Exit(_for_each(archives, act, as_json=as_json))


@app.command(
    short_help="Show what an archive holds.",
    epilog=_epilog("inspect 'demo-share/archive/slides/overview planar.tif.zarr.zip'"),
)
def inspect(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="One archive.")],
    *,
    as_json: Json = False,
) -> None:
    """Show what an archive holds, without reading a pixel, and who verified it when."""
    _there(archive)
    from decant_batch.archive import inspect as look
    from decant_batch.ui.inspection import inspection_text
    from decant_batch.ui.proof import proof_of, proof_text

    found = look(archive)
    proof = proof_of(archive, found.sha256)
    if as_json:
        _say_json({**asdict(found), "verified": asdict(proof)})
    else:
        say(inspection_text(found, proof_text(proof)))


@app.command(
    short_help="Write a small share, pack it, prove it comes back.",
    epilog=_epilog("demo demo-share"),
)
def demo(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    *,
    run_it: Annotated[
        bool, typer.Option("--run/--no-run", help="Also pack and restore it.")
    ] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a believable share of about 30 MB and its config, pack it, and prove it comes back."""
    from decant_batch.ui import demo as share

    tell = _silent if as_json else say
    config = share.write(directory)
    tell(share.written_text(config))
    code = _DONE
    values: dict[str, Any] = {"config": str(config), "run": None, "compared": None}
    if run_it:
        tell("")
        show = _silent if as_json else _show_text
        summary = _run(config, quiet=quiet or as_json, show=show)
        comparison = share.restore_all(directory)
        tell("\n" + share.comparison_text(comparison))
        code = run_code(summary) or (_FAILED if comparison.differing else _DONE)
        values |= {"run": _values(summary), "compared": asdict(comparison)}
    tell("\n" + share.next_steps_text(config))
    if as_json:
        _say_json(values)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        app(prog_name="decant-batch")
    finally:
        # All is said and done: what Python still takes down needs no word about Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(path: Path, *, quiet: bool, show: Callable[[Summary], object]) -> Summary:
    """Run the config at ``path``, write its report, ``show`` what it did, and return that."""
    from decant_batch.batch.config import load
    from decant_batch.batch.run import execute
    from decant_batch.ui import progress, report

    config = load(path)
    # A service manager or a batch system ends a run as Ctrl-C does: in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with progress.watching(sys.stderr, quiet=quiet) as watch:
        summary: Summary = execute(config, watch=watch)
    try:
        summary = report.write(summary)
    finally:
        # A report that cannot be written must not take the result with it.
        show(summary)
    if run_code(summary) == _INTERRUPTED:
        complain(_INTERRUPTED_TEXT)
    return summary


def _show_text(summary: Summary) -> None:
    from decant_batch.ui.report import summary_text

    say(summary_text(summary))


def _show_json(summary: Summary) -> None:
    _say_json(_values(summary))


def _values(summary: Summary) -> dict[str, Any]:
    from decant_batch.ui.report import summary_values

    return summary_values(summary)


def _say_json(values: dict[str, Any]) -> None:
    from decant_batch.ui.report import json_text

    say(json_text(values))


def _silent(_result: object) -> None:
    """Show nothing."""


def run_code(summary: Summary) -> int:
    """The exit code of a run that came to its end, or stopped before it."""
    from decant_batch.batch.model import INTERRUPTED

    if summary.stopped == INTERRUPTED:
        return _INTERRUPTED
    # Only a destination that cannot be used stops a run otherwise before its end.
    if summary.stopped or any(each.failure == "destination" for each in summary.troubles):
        return _UNUSABLE
    return _FAILED if summary.trouble_count else _DONE


def _for_each(
    archives: Iterable[Path], act: Callable[[Path], dict[str, Any]], *, as_json: bool
) -> int:
    """Act on every archive, also after one failed, and return the worst code."""
    codes, entries = [_DONE], []
    for archive in archives:
        entry: dict[str, Any] = {"archive": str(archive), "error": None}
        try:
            _there(archive)
            entry.update(act(archive))
            code = ArchiveDamaged.exit_code if entry["error"] else _DONE
        except (DecantError, OSError) as error:
            code, entry["error"] = _code_of(error), _line_of(error)
        if entry["error"]:
            complain(entry["error"])
        codes.append(code)
        entries.append(entry)
    if as_json:
        _say_json({"archives": entries})
    elif len(entries) > 1:
        say(f"{codes[1:].count(_DONE):,} of {len(entries):,} archives without a problem")
    return max(codes, key=_FROM_BEST_TO_WORST.index)


def _refuse_two_at_one_place(archives: Iterable[Path], members: list[str] | None) -> None:
    """Two versions of one source have one path: which is wanted is for the user to say."""
    from decant_batch.archive import targets

    first: dict[str, Path] = {}
    for archive in archives:
        relpaths: list[str] = []
        # What cannot be read is told, with its code, when its turn comes.
        with contextlib.suppress(DecantError, OSError):
            relpaths = targets(archive, members)
        for relpath in relpaths:
            other = first.setdefault(relpath, archive)
            if other != archive:
                raise UsageError(
                    f"{archive}: holds {relpath}, and so does {other}; nothing was restored;"
                    " restore them one by one, into different folders"
                )


def _there(archive: Path) -> None:
    if not archive.exists():
        raise UsageError(f"{archive}: there is no such archive; check the name")


def _each_listed(items: Iterable[Planned], listed: list[dict[str, Any]]) -> Iterator[Planned]:
    """``items``, each also put into ``listed``."""
    from decant_batch.ui.forecast import planned_values

    for item in items:
        listed.append(planned_values(item))
        yield item


def _each_shown(items: Iterable[Planned]) -> Iterator[Planned]:
    """``items``, each with its line on stdout as it comes, until nobody reads any more."""
    from decant_batch.ui.forecast import planned_line

    for item in items:
        if not say(planned_line(item)):
            return
        yield item
