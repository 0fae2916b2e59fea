from __future__ import annotations

import json
from dataclasses import replace

from decant_batch.archive.model import Recipe
from decant_batch.batch.model import Job, Outcome, Source
from decant_batch.ui import forecast, report


def _source(relpath: str, size: int) -> Source:
    return Source(relpath=relpath, size=size, mtime_ns=0, mode=0o644)


EXACT = Job(
    source=_source("a.tif", 1000),
    archive="a.tif.zarr.zip",
    mode="byte-exact",
    reason=None,
    detail="",
    recipe=Recipe(),
    projected_bytes=300 * 2**20,
)
VERBATIM = Job(
    source=_source("b\n.tif", 500),
    archive="b\n.tif.zarr.zip",
    mode="verbatim",
    reason="compressed",
    detail="LZW",
    recipe=Recipe(),
    projected_bytes=100 * 2**20,
)
FAILED = Outcome(
    source=_source("A.TIF", 7),
    state="failed",
    failure="permanent",
    message="A.TIF.zarr.zip and a.tif.zarr.zip would be one file; rename one",
)
SETTLED = Outcome(
    source=_source("c.tif", 20_000), state="archived", archive="c.tif.zarr.zip", archive_nbytes=9
)
ITEMS = (EXACT, VERBATIM, FAILED, SETTLED)


def test_a_plan_says_what_would_happen() -> None:
    text = forecast.forecast_text(forecast.forecast(iter(ITEMS)))
    rows = {line.rsplit("  ", 3)[0].strip(): line for line in text.splitlines()}
    assert "make, byte-exact" in text
    assert "make, verbatim" in text
    assert "verbatim because: compressed 1" in text
    assert "most memory for one archive: 300.0 MiB, for a.tif" in text
    assert "would be one file; rename one" in text
    assert "21,507" in next(line for line in rows.values() if line.startswith("total"))


def test_a_plan_of_nothing() -> None:
    text = forecast.forecast_text(forecast.forecast(()))
    assert "total" in text
    assert "memory" not in text


def test_a_plan_as_json() -> None:
    text = report.json_text(forecast.forecast_values(forecast.forecast(ITEMS)))
    values = json.loads(text)
    assert values["found"]["count"] == 4
    assert values["make"]["byte-exact"]["source_nbytes"] == 1000
    assert values["make"]["series"]["count"] == 0
    assert values["states"]["archived"]["count"] == 1
    assert values["memory_bytes"] == 300 * 2**20
    assert values["troubles"][0]["relpath"] == "A.TIF"


def test_an_archive_that_goes_elsewhere_is_named() -> None:
    assert "a.tif -> a.tif.v2.zarr.zip" in forecast.planned_line(
        replace(EXACT, archive="a.tif.v2.zarr.zip")
    )


def test_each_source_of_a_plan_is_one_line() -> None:
    lines = [forecast.planned_line(item) for item in ITEMS]
    assert all(line.isprintable() for line in lines)
    assert "byte-exact" in lines[0]
    assert lines[0].endswith("  a.tif  (memory 300.0 MiB)")
    assert lines[1].endswith(r"  b\n.tif  (compressed, memory 100.0 MiB)")
    assert "rename one" in lines[2]
    assert lines[3].startswith("keep, archived")
