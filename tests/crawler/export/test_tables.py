"""Tables of a job: the same rows in every format, and nothing from the web that a reader would run or cannot hold."""

from __future__ import annotations

import csv
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.crawler.export import tables
from anabranch.crawler.export.cut import PAGES, JobCut, cut_of
from anabranch.crawler.export.tables import CsvWriter, harmless, write_tables, writer_of
from anabranch.crawler.outcomes.errors import DiskFull, UsageError
from anabranch.crawler.report.troubles import Failure, error_line
from tests.crawler.archive.exchanges import START_S
from tests.crawler.export.jobs import entry, finished

A, B, C = "http://a.test/1", "http://a.test/2", "http://b.test/"
#: A name from the web that no format can hold.
ODD = "http://a.test/\ud800\0é"


def failure(url: str) -> bytes:
    return error_line(Failure(time_s=START_S, url=url, status=-2, attempt=1, is_final=True))


async def job_of(tmp_path: Path) -> JobCut:
    found = [
        entry(A, links=[B, B, C, '=HYPERLINK("http://evil.test/")']),
        entry(B, hops="L", links=[A]),
        entry(C, errors=failure(C)),
    ]
    job = await finished(tmp_path / "job", *found, warc=False)
    with (job / "pages.jsonl").open("ab") as file:
        file.write(json.dumps({"url": ODD, "status": 1 << 70, "title": "=1+1", "text": "a\nb", "size": True}).encode())
        file.write(b"\nno JSON\n[1]\n")
    return cut_of(job)


def read_csv(folder: Path, table: str) -> list[dict[str, Any]]:
    with (folder / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return [{name: value or None for name, value in row.items()} for row in csv.DictReader(file)]


def read_sqlite(folder: Path, table: str) -> list[dict[str, Any]]:
    database = sqlite3.connect(folder / "tables")
    database.row_factory = sqlite3.Row
    rows = [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
    database.close()
    return rows


def read_duckdb(folder: Path, table: str) -> list[dict[str, Any]]:
    """As a stranger reads it; times as milliseconds, since Python's of a zone need one more library."""
    import duckdb

    times = {"pages": "fetch_time", "errors": "time", "crawl_log": "logged"}
    shown = f"REPLACE (epoch_ms({times[table]}) AS {times[table]})" if table in times else ""
    more = " EXCLUDE (fetch_time)" if table == "crawl_log" else ""
    with duckdb.connect() as database:
        found = database.execute(f"SELECT *{more} {shown} FROM '{folder}/{table}.parquet'")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


READERS: dict[str, Callable[[Path, str], list[dict[str, Any]]]] = {
    "csv": read_csv,
    "sqlite": read_sqlite,
    "parquet": read_duckdb,
}


@pytest.mark.parametrize("kind", READERS)
async def test_each_format_has_all_rows_of_all_tables(tmp_path: Path, kind: str) -> None:
    """Pages, the log, errors, links, and the graph with each URL and each edge once."""
    cut = await job_of(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    with writer_of(kind, lambda name: out / (name or "tables")) as writer:
        counts = write_tables(cut, writer, tmp_path)
    read = READERS[kind]
    found = {name: read(out, name) for name in counts}
    assert counts == {name: len(rows) for name, rows in found.items()}
    assert counts == {"pages": 4, "crawl_log": 3, "errors": 1, "links": 5, "nodes": 4, "edges": 4}
    assert [row["url"] for row in found["pages"]] == [A, B, C, "http://a.test/?\ufffdé"]
    assert [row["hops"] or "" for row in found["crawl_log"]] == ["", "L", ""]
    assert found["errors"][0]["url"] == C
    assert {str(row["status"]) for row in found["pages"][:3]} == {"200"}
    assert found["pages"][3]["status"] is found["pages"][3]["size"] is None
    names = {str(row["id"]): row["url"] for row in found["nodes"]}
    edges = {(names[str(row["source"])], names[str(row["target"])]): int(row["links"]) for row in found["edges"]}
    assert (edges[A, B], edges[A, C], edges[B, A]) == (2, 1, 1)
    assert {row["url"]: str(row["is_page"]) in {"True", "1"} for row in found["nodes"]}[C] is False
    assert cut.damaged == {PAGES: 2}
    if kind == "parquet":
        assert found["pages"][0]["fetch_time"] == START_S * 1000
    else:
        assert found["pages"][0]["fetch_time"] == "2026-01-01T00:00:00.250Z"
    if kind == "csv":
        assert found["pages"][3]["title"] == "'=1+1"
        assert found["links"][3]["target"].startswith("'=HYPERLINK")
    else:
        assert found["pages"][3]["title"] == "=1+1"
    assert found["pages"][3]["text"] == "a\nb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://a.test/", "http://a.test/"),
        ("=1", "'=1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("\x1b[31m\x9b\x7f", "\\u001b[31m\\u009b\\u007f"),
        ("a\r\n\u2028", "a\\u000d\n\\u2028"),
    ],
)
def test_a_cell_of_csv_is_no_formula_and_obeys_no_terminal(text: str, shown: str) -> None:
    """A site chooses titles, contexts and URLs."""
    assert harmless(text) == shown


async def test_without_links_there_is_no_graph(tmp_path: Path) -> None:
    """The table of links is there, and empty."""
    cut = cut_of(await finished(tmp_path / "job", entry(A), links=False, warc=False))
    with CsvWriter(lambda name: tmp_path / name) as writer:
        assert write_tables(cut, writer, tmp_path) == {"pages": 1, "crawl_log": 1, "errors": 0, "links": 0}


async def test_rows_are_written_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many rows, and fewer if their texts are long: memory does not grow with the job."""
    cut = cut_of(await finished(tmp_path / "job", *map(entry, [A, B, C]), warc=False))
    written: list[int] = []

    class Counting(CsvWriter):
        def write(self, rows: Any) -> None:
            written.append(len(rows))
            super().write(rows)

    monkeypatch.setattr(tables, "_BATCH_ROWS", 2)
    with Counting(lambda name: tmp_path / name) as writer:
        write_tables(cut, writer, tmp_path)
    assert written == [2, 1, 2, 1]
    monkeypatch.setattr(tables, "_BATCH_CHARS", 1)
    with Counting(lambda name: tmp_path / name) as writer:
        write_tables(cut, writer, tmp_path)
    assert written[4:] == [1] * 6


def test_parquet_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, worded as those of the other extras."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"^--to parquet: needs pyarrow; .*install .*\[export\]"):
        writer_of("parquet", Path)


async def test_a_full_disk_ends_each_format_with_one_line(tmp_path: Path) -> None:
    """SQLite has errors of its own."""
    cut = await job_of(tmp_path)
    for kind in READERS:
        with pytest.raises(DiskFull, match="no space left"), writer_of(kind, lambda _: Path("/dev/full")) as writer:
            write_tables(cut, writer, tmp_path)
