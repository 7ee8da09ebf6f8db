"""WARC files: what strangers read out of them, rotation, kills, full disks."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.archive.cdxj import HEAD_BYTES
from anabranch.crawler.archive.compression import Zstd, trained_dictionary
from anabranch.crawler.archive.files import WarcFiles, WarcOptions, convert, open_files, reindex, sampled_records
from anabranch.crawler.archive.records import NOT_MODIFIED, SAME_PAYLOAD, Exchange, Original, Revisit
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.journal import Journal, LineFile
from anabranch.crawler.outcomes.errors import DiskFull, JournalFailed, JournalFull, StorageError, UsageError
from tests.acceptance.blocking import Process
from tests.crawler.archive import folders
from tests.crawler.archive.exchanges import (
    COMPRESSIONS,
    HTML,
    OPTIONS,
    Payload,
    dictionary,
    exchange,
    read_by_fastwarc,
    read_by_warcio,
    urls_in,
    warcs,
    zstd,
)
from tests.crawler.archive.folders import clock, index_of, opened, write

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, params=["gzip", "dictionary"])
def compression(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each rule holds for both compressions."""
    monkeypatch.setattr(folders, "OPTIONS", replace(OPTIONS, compression=COMPRESSIONS[request.param]()))
    return str(request.param)


def ending(compression: str) -> str:
    """The ending of a finished file."""
    return ".warc.gz" if compression == "gzip" else ".warc.zst"


def test_both_readers_find_all_records_and_every_digest_right(tmp_path: Path, compression: str) -> None:
    """The file begins with its warcinfo; then come response, request and metadata of each visit."""
    files = opened(tmp_path)
    write(files, "http://a.test/1", "http://a.test/2")
    write(files, "http://a.test/3")
    files.append([JournalEntry(crawl_log=b"no exchange\n")])
    files.keep()
    files.close()
    (path,) = warcs(tmp_path / "warc")
    records = read_by_warcio(path)
    assert [record.kind for record in records] == ["warcinfo", *["response", "request", "metadata"] * 3]
    assert [(record.kind, record.url) for record in records] == read_by_fastwarc(path)
    assert records[0].fields["WARC-Filename"] == path.name
    assert len(index_of(tmp_path)) == 3
    assert sorted(p.suffix for p in (tmp_path / "warc").iterdir()) == [".cdxj", Path(ending(compression)).suffix]


def test_no_file_is_made_for_no_exchange(tmp_path: Path) -> None:
    """A crawl that gets no answer leaves an empty folder."""
    files = opened(tmp_path)
    files.append([JournalEntry(crawl_log=b"line\n")])
    files.keep()
    files.close()
    assert list((tmp_path / "warc").iterdir()) == []


def test_a_file_that_grows_says_so_in_its_name(tmp_path: Path, compression: str) -> None:
    """`PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST.warc.gz.open`, or `.warc.zst.open`."""
    files = opened(tmp_path)
    write(files, "http://a.test/1")
    assert min(p.name.partition(".")[0] for p in (tmp_path / "warc").iterdir()).startswith(
        "test-20260101000000250-00000-"
    )
    assert files.path.name.endswith(ending(compression) + ".open")
    files.close()


def test_a_full_file_is_finished_and_the_next_one_begun(tmp_path: Path, compression: str) -> None:
    """Between groups and within one; numbers go up, also over runs; no visit is torn apart."""
    noise = os.urandom(3000)
    for run in range(2):
        files = opened(tmp_path, size_bytes=10_000)
        write(files, *(f"http://a.test/{run}/a{n}" for n in range(10)), data=noise)
        for n in range(10):
            write(files, f"http://a.test/{run}/b{n}", data=noise)
        files.close()
    paths = warcs(tmp_path / "warc")
    assert [path.name.split("-")[2] for path in paths] == [f"{n:05}" for n in range(len(paths))]
    assert len(paths) == (14 if compression == "gzip" else 20)  # three visits in each; two beside the dictionary
    assert len(set(urls_in(tmp_path / "warc"))) == 40
    for path in paths:
        assert path.stat().st_size < 15_000
        assert len(read_by_warcio(path)) % 3 == 1
    assert {fields["url"] for fields in index_of(tmp_path)} == set(urls_in(tmp_path / "warc"))


def test_a_group_that_is_taken_back_leaves_nothing(tmp_path: Path) -> None:
    """Neither in the file nor in the index; a file that was begun for it is removed."""
    files = opened(tmp_path, size_bytes=8_000)
    for kept in (False, True):
        if kept:
            write(files, "http://a.test/kept")
        files.append([JournalEntry(exchange=exchange(f"http://a.test/{n}", os.urandom(3000))) for n in range(9)])
        files.take_back()
    write(files, "http://a.test/later")
    files.close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/kept", "http://a.test/later"]
    assert len(index_of(tmp_path)) == 2


def test_of_a_group_that_broke_amid_its_records_nothing_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were ready for the disk are forgotten: the next group follows the last that counts."""
    files = opened(tmp_path)
    write(files, "http://a.test/1")
    broken = exchange("http://a.test/3")
    with monkeypatch.context() as patch:
        patch.setattr(type(broken), "date", property(lambda visit: {}[visit.url] if visit is broken else "2026"))
        with pytest.raises(KeyError):
            files.append([JournalEntry(exchange=exchange("http://a.test/2")), JournalEntry(exchange=broken)])
    files.take_back()
    write(files, "http://a.test/4")
    files.close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/1", "http://a.test/4"]
    assert len(index_of(tmp_path)) == 2


def test_taking_back_cuts_file_and_index_at_once(tmp_path: Path) -> None:
    """A kill behind it must not find lines of records that are gone."""
    files = opened(tmp_path)
    write(files, "http://a.test/1")
    before = {path: path.read_bytes() for path in (tmp_path / "warc").iterdir()}
    files.append([JournalEntry(exchange=exchange("http://a.test/2"))])
    files.take_back()
    assert {path: path.read_bytes() for path in (tmp_path / "warc").iterdir()} == before
    files.close()


def test_what_could_not_be_taken_back_is_cut_before_the_file_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished file holds what counts and nothing else."""
    files = opened(tmp_path)
    write(files, "http://a.test/1")
    files.append([JournalEntry(exchange=exchange("http://a.test/2"))])

    def refuse(descriptor: int, length: int) -> None:
        raise OSError(5, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        files.take_back()
    files.close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/1"]
    assert len(index_of(tmp_path)) == 1


WRITERS = """
import asyncio, sys
from pathlib import Path
from anabranch.crawler.archive.files import WarcFiles
from anabranch.crawler.job.journal import JournalEntry
from anabranch.crawler.job.journal import Journal
from anabranch.crawler.job.journal import LineFile
from tests.crawler.archive.exchanges import COMPRESSIONS, exchange
from tests.crawler.archive.folders import opened

async def main(folder, run):
    files = opened(folder, size_bytes=60_000, compression=COMPRESSIONS[sys.argv[3]]())
    journal = Journal(files, LineFile(folder / "crawl.log", "crawl_log"))
    async def writer(name):
        for number in range(10**9):
            url = f"http://a.test/{run}/{name}/{number}"
            line = url.encode() + b"\\n"
            await journal.write(JournalEntry(crawl_log=line, exchange=exchange(url, line * 50 * (1 + number % 40))))
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    await asyncio.gather(*(writer(name) for name in range(16)))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""
#: What it imports.
WRITING = ("tests.crawler.archive.exchanges", "tests.crawler.archive.folders", "anabranch.crawler.job.journal")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_thirty_kills_every_acknowledged_record_is_there_and_whole(tmp_path: Path, compression: str) -> None:
    """Each run goes on where the one before was killed; nothing that a writer was told is missing, nothing is torn."""
    (program := tmp_path / "writers.py").write_text(WRITERS)
    acknowledged: list[str] = []
    for run in range(30):
        with Process(
            [str(program), str(tmp_path), str(run), compression], cwd=ROOT, stderr=None, preload=WRITING
        ) as process:
            assert process.stdout is not None
            acknowledged += [process.stdout.readline() for _ in range(20 + 37 * run % 101)]
            process.kill()
            acknowledged += [line for line in process.stdout.readlines() if line.endswith("\n")]
        assert process.returncode == -signal.SIGKILL
    opened(tmp_path).close()
    found = urls_in(tmp_path / "warc")
    assert {line.strip() for line in acknowledged} <= set(found)
    assert len(found) == len(set(found)) <= len(acknowledged) + 30 * 16
    assert sorted(fields["url"] for fields in index_of(tmp_path)) == sorted(found)
    assert set((tmp_path / "crawl.log").read_bytes().splitlines()) <= {url.encode() for url in found}


async def test_a_disk_that_is_full_in_the_middle_of_a_record_takes_the_whole_group_back(
    tmp_path: Path, small_files: int
) -> None:
    """No line of the log, no record; the error is the journal's; a later run goes on."""
    log = tmp_path / "crawl.log"
    journal = Journal(opened(tmp_path), LineFile(log, "crawl_log"))
    await journal.write(JournalEntry(crawl_log=b"1\n", exchange=exchange("http://a.test/1")))
    large = exchange("http://a.test/2", os.urandom(2 * small_files))
    with pytest.raises(JournalFull, match=r"\.warc\.(gz|zst)\.open: file too large; free some space"):
        await journal.write(JournalEntry(crawl_log=b"2\n", exchange=large))
    await journal.close()
    assert log.read_bytes() == b"1\n"
    assert urls_in(tmp_path / "warc") == ["http://a.test/1"]
    files = opened(tmp_path)
    write(files, "http://a.test/2")
    files.close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/1", "http://a.test/2"]


async def test_a_body_that_is_gone_fails_its_group_and_makes_no_torn_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was closed too early: a defect of the crawler, not a record that lies."""
    visit = exchange("http://a.test/1")
    monkeypatch.setattr(type(visit.response.body), "chunks", lambda *_: iter(()))
    journal = Journal(opened(tmp_path))
    with pytest.raises(JournalFailed, match="closed too early"):
        await journal.write(JournalEntry(exchange=visit))
    await journal.close()
    assert list((tmp_path / "warc").iterdir()) == []


async def test_a_log_that_cannot_be_written_takes_the_records_back_too(tmp_path: Path, small_files: int) -> None:
    """All or nothing: a record without its line in crawl.log would be a page that nobody fetched."""
    journal = Journal(opened(tmp_path), LineFile(tmp_path / "crawl.log", "crawl_log"))
    await journal.write(JournalEntry(crawl_log=b"1\n", exchange=exchange("http://a.test/1")))
    with pytest.raises(JournalFull, match=r"crawl\.log: file too large"):
        await journal.write(JournalEntry(crawl_log=b"2" * small_files + b"\n", exchange=exchange("http://a.test/2")))
    await journal.close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/1"]
    assert len(index_of(tmp_path)) == 1


async def test_a_file_that_cannot_be_finished_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a crawl on a full disk loses nothing."""
    files = opened(tmp_path)
    write(files, "http://a.test/1")
    with monkeypatch.context() as patch:
        patch.setattr(
            "anabranch.crawler.archive.files.write_sorted", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
        )
        files.close()
    assert warcs(tmp_path / "warc") == []
    opened(tmp_path).close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/1"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """In one line for the operator."""
    (tmp_path / "warc").write_bytes(b"a file")
    with pytest.raises(StorageError, match=f"^{tmp_path}/warc: "):
        opened(tmp_path)


def test_a_read_only_disk_is_an_operators_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told when the crawl opens."""

    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DiskFull, match="read-only file system; mount it writable"):
        opened(tmp_path)


def test_a_large_body_is_never_held_whole(tmp_path: Path) -> None:
    """It is read twice in pieces: once for its digest, once to be written."""
    visit = exchange("http://a.test/large", bytes(5 << 20))
    files = opened(tmp_path)
    files.append([JournalEntry(exchange=visit)])
    files.keep()
    files.close()
    assert len(visit.response.body.reads) == 2  # type: ignore[attr-defined]
    assert urls_in(tmp_path / "warc") == ["http://a.test/large"]


def test_writers_share_the_sync_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group costs one, however many its exchanges; the index of the open file costs none."""
    files = opened(tmp_path)
    write(files, "http://a.test/0")
    syncs: list[int] = []
    monkeypatch.setattr("anabranch.dedup.files.durable.sync_file", syncs.append)
    write(files, *(f"http://a.test/{n}" for n in range(1, 60)))
    assert len(syncs) == 1
    files.close()


def test_options_are_told_in_the_first_record(tmp_path: Path) -> None:
    """Empty ones are left out."""
    files = WarcFiles(
        tmp_path, WarcOptions(prefix="p", size_bytes=1 << 20, facts={"software": "x", "operator": ""}), clock
    )
    write(files, "http://a.test/")
    files.close()
    assert read_by_warcio(warcs(tmp_path)[0])[0].payload == b"software: x\r\n"


def leave(folder: Path, *urls: str) -> tuple[Path, Path]:
    """Leave an open file and its index behind, as a killed process does."""
    files = opened(folder)
    write(files, *urls)
    path = files.path
    return path, path.with_name(path.name.partition(".warc.")[0] + ".cdxj.open")


@pytest.mark.parametrize("cut", [1, 10, 300, None])
@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_torn_file_is_cut_after_its_last_whole_visit_and_finished(
    tmp_path: Path, cut: int | None, lines: int
) -> None:
    """Whatever the index knew, it is complete afterwards, and the file has its name; no answer is without its request."""
    warc, index = leave(tmp_path, *(f"http://a.test/{n}" for n in range(3)))
    second = int(json.loads(index.read_bytes().splitlines()[1].split(b" ", 2)[2])["offset"])
    os.truncate(warc, second + 10 if cut is None else warc.stat().st_size - cut)
    index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:lines]))
    opened(tmp_path).close()
    found = urls_in(tmp_path / "warc")
    assert found == [f"http://a.test/{n}" for n in range(len(found))]
    assert len(found) == (2 if cut else 1)
    assert sorted(fields["url"] for fields in index_of(tmp_path)) == found
    assert not list((tmp_path / "warc").glob("*.open"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda warc, index: index.unlink(),
        lambda warc, index: index.write_bytes(bytes(500)),
        lambda warc, index: index.write_bytes(index.read_bytes() + b"torn"),
        lambda warc, index: index.write_bytes(index.read_bytes().replace(b'"offset":"', b'"offset":"1')),
        lambda warc, index: warc.write_bytes(warc.read_bytes() + bytes(70_000)),
        lambda warc, index: warc.write_bytes(warc.read_bytes() + os.urandom(70_000)),
    ],
)
def test_what_a_power_failure_leaves_behind_is_not_believed(
    tmp_path: Path, spoil: Callable[[Path, Path], object]
) -> None:
    """Zeros, noise, an index that lies or is gone: the records decide."""
    spoil(*leave(tmp_path, "http://a.test/1", "http://a.test/2"))
    opened(tmp_path).close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/1", "http://a.test/2"]
    assert len(index_of(tmp_path)) == 2


def test_an_open_file_without_a_whole_record_is_removed(tmp_path: Path) -> None:
    """Nobody was told that anything in it counts."""
    warc, _ = leave(tmp_path, "http://a.test/1")
    os.truncate(warc, 20)
    opened(tmp_path).close()
    assert list((tmp_path / "warc").iterdir()) == []


def test_finishing_that_was_broken_off_is_gone_on_with(tmp_path: Path) -> None:
    """The sorted index was there already, or the file had its name already."""
    warc, index = leave(tmp_path, "http://a.test/1")
    warc.with_name(index.name.removesuffix(".open")).write_bytes(b"half")
    opened(tmp_path).close()
    assert len(index_of(tmp_path)) == 1
    index.write_bytes(b"left behind")
    opened(tmp_path).close()
    assert len(index_of(tmp_path)) == 1
    assert not index.exists()


ORIGINAL = Original("http://a.test/first", "2026-01-01T00:00:00.000000Z", Payload(b"data").digest)


def archive(folder: Path) -> Path:
    """Four answers of different kinds in one file."""
    files = opened(folder)
    files.append(
        [
            JournalEntry(
                exchange=exchange("http://a.test/1", b"data", raw_headers=((b"CONTENT-type", b"Text/CSS ;x"),))
            ),
            JournalEntry(exchange=exchange("http://a.test/2", b"gone", status=404, reason="", raw_headers=())),
            JournalEntry(exchange=exchange("http://a.test/3", b"data", revisit=Revisit(SAME_PAYLOAD, ORIGINAL))),
            JournalEntry(
                exchange=exchange("http://a.test/4", b"", status=304, revisit=Revisit(NOT_MODIFIED, ORIGINAL))
            ),
        ]
    )
    files.keep()
    files.close()
    return warcs(folder / "warc")[0]


def test_the_index_made_anew_is_the_one_that_was_written(tmp_path: Path) -> None:
    """An index read out of the records equals the one made when they were written, to the byte."""
    path = archive(tmp_path)
    index = next((tmp_path / "warc").glob("*.cdxj"))
    written = index.read_bytes()
    index.write_bytes(b"stale")
    assert list(reindex(tmp_path / "warc")) == [(path, path, 4, None)]
    assert index.read_bytes() == written
    assert written.count(b"\n") == 4
    assert b'"warc/revisit"' in written


def typed(value: bytes, name: bytes = b"Content-Type") -> Exchange:
    """An answer whose type is written so."""
    return exchange(raw_headers=((b"Server", b"x"), (name, value), (b"Content-Type", b"the/second")))


ODD = {
    "charset of utf-8": typed("text/html; charset=ütf".encode()),
    "charset of latin-1": typed("text/ü; charset=ü".encode("latin-1")),
    "type that is no text": typed(b"\xff\xfe\x80"),
    "space that is not ASCII": typed("\u3000text/html\x85".encode()),
    "NUL": typed(b"text/html\x00charset"),
    "folded": typed(b"\r\n text/html"),
    "a lone CR": typed(b"text/html\rx"),
    "nothing": typed(b""),
    "name with a space": typed(b"text/html", b"Content-Type "),
    "name in capitals": typed(b"text/html", b"CONTENT-TYPE"),
    "type far behind": exchange(raw_headers=((b"X", b"x" * HEAD_BYTES), (b"Content-Type", b"text/html"))),
    "type across the end of what is read": exchange(raw_headers=((b"X", b"x" * (HEAD_BYTES - 500)), *[HTML[0]] * 20)),
    "type in the body": exchange(data=b"\r\nContent-Type: text/plain\r\n\r\n", raw_headers=()),
    "redirect": exchange(data=b"", status=302, raw_headers=((b"Location", "/ü".encode()),)),
    "empty body": exchange(data=b"", raw_headers=((b"Content-Length", b"0"), *HTML)),
    "robots.txt": replace(exchange("http://a.test/robots.txt", b"User-agent: *", raw_headers=()), hops="P"),
    "unasked 304": exchange(data=b"", status=304),
    "reason of many words": exchange(status=404, reason="Nicht gefunden \udcfc"),
    "old version": exchange(version="1.0"),
    "URL that is not ASCII": exchange("http://a.test/ü b\r\nc?\ud800"),
    "revisit": exchange(raw_headers=HTML, revisit=Revisit(SAME_PAYLOAD, ORIGINAL)),
    "revisit of a 304": exchange(data=b"", status=304, raw_headers=HTML, revisit=Revisit(NOT_MODIFIED, ORIGINAL)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_whatever_a_server_says_is_indexed_alike_now_and_later(tmp_path: Path, odd: Exchange) -> None:
    """One function makes the line, from the same bytes: in a finished file, and in one whose index was lost with a crash."""
    files = opened(tmp_path)
    files.append([JournalEntry(exchange=odd)])
    files.keep()
    growing = next((tmp_path / "warc").glob("*.cdxj.open"))
    written = growing.read_bytes()
    growing.unlink()
    opened(tmp_path).close()
    index = next((tmp_path / "warc").glob("*.cdxj"))
    mended = index.read_bytes()
    index.unlink()
    list(reindex(tmp_path / "warc"))
    assert index.read_bytes() == mended == written
    assert written.count(b"\n") == 1


def test_a_damaged_file_is_indexed_up_to_the_damage(tmp_path: Path) -> None:
    """And where it begins is said."""
    path = archive(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    (done,) = reindex(tmp_path / "warc")
    assert (done.answers, done.damaged_from is not None) == (4, True)


def test_open_files_are_left_alone(tmp_path: Path) -> None:
    """A crawl writes them."""
    files = opened(tmp_path)
    write(files, "http://a.test/1")
    before = files.path.read_bytes()
    assert list(reindex(tmp_path / "warc")) == []
    assert [path.read_bytes() for path in open_files(tmp_path / "warc")] == [before]
    files.close()


def test_a_run_of_another_compression_goes_on_with_the_folder(tmp_path: Path) -> None:
    """A killed run's file is finished, numbers go up, both kinds are indexed and read."""
    leave(tmp_path, "http://a.test/1")
    for name in ("zstd", "gzip"):
        files = opened(tmp_path, compression=COMPRESSIONS[name]())
        write(files, f"http://a.test/{name}")
        files.close()
    assert [path.name.split("-")[2] for path in warcs(tmp_path / "warc")] == ["00000", "00001", "00002"]
    assert [done.answers for done in reindex(tmp_path / "warc")] == [1, 1, 1]
    assert urls_in(tmp_path / "warc") == [f"http://a.test/{name}" for name in ("1", "zstd", "gzip")]


def test_a_large_record_is_one_member_that_knows_its_size(tmp_path: Path, compression: str) -> None:
    """It is compressed in pieces; readers of zstd are promised its size, its checksum and its dictionary."""
    files = opened(tmp_path)
    write(files, "http://a.test/large", data=os.urandom(600_000))
    files.close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/large"]
    (fields,) = index_of(tmp_path)
    if compression != "gzip":
        frame = warcs(tmp_path / "warc")[0].read_bytes()[int(fields["offset"]) :]
        about = zstd().get_frame_info(frame)
        assert about.decompressed_size > 600_000
        assert about.dictionary_id == zstd().ZstdDict(dictionary()).dict_id
        assert frame[4] & 4, "Content_Checksum_flag of RFC 8878"


def test_a_converted_file_has_the_records_and_an_index_of_its_own(tmp_path: Path, compression: str) -> None:
    """It is gzip, and its first record names it; it is made once; files that are gzip already are left alone."""
    path, target = archive(tmp_path), tmp_path / "converted"
    (target / "warc").mkdir(parents=True)
    done = list(convert(tmp_path / "warc", target / "warc"))
    if compression == "gzip":
        assert done == []
        return
    (made,) = warcs(target / "warc")
    assert done == [(path, made, 4, None)]
    assert made.name == path.name.removesuffix(".zst") + ".gz"
    (info, *found), (_, *expected) = read_by_warcio(made), read_by_warcio(path)
    assert found == expected
    assert info.fields["WARC-Filename"] == made.name
    assert [fields["url"] for fields in index_of(target)] == [fields["url"] for fields in index_of(tmp_path)]
    assert list(convert(tmp_path / "warc", target / "warc")) == []


def test_a_conversion_without_the_library_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half of a file, under any name."""
    files = opened(tmp_path, compression=Zstd())
    write(files, "http://a.test/1")
    files.close()
    target = tmp_path / "made"
    target.mkdir()
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"needs backports\.zstd"):
        list(convert(tmp_path / "warc", target))
    assert list(target.iterdir()) == []


def test_a_damaged_file_is_converted_up_to_the_damage(tmp_path: Path) -> None:
    """The new file has nothing of the torn record."""
    files = opened(tmp_path, compression=COMPRESSIONS["zstd"]())
    write(files, "http://a.test/1")
    write(files, "http://a.test/2", data=os.urandom(200_000))
    files.close()
    (path,) = warcs(tmp_path / "warc")
    second = int(index_of(tmp_path)[1]["offset"])
    os.truncate(path, second + 150_000)
    (tmp_path / "made").mkdir()
    (done,) = convert(tmp_path / "warc", tmp_path / "made")
    assert (done.answers, done.damaged_from) == (1, second)
    assert urls_in(tmp_path / "made") == ["http://a.test/1"]


def test_a_dictionary_is_made_of_records_of_all_files(tmp_path: Path, compression: str) -> None:
    """Responses, requests and metadata are its samples; crawls like it get smaller by it."""
    files = opened(tmp_path, size_bytes=10_000)
    for n in range(200):
        write(files, f"http://a.test/{n}", data=b"<p>the same words on each of the pages of a site, %d" % (n * 7919))
    files.close()
    samples = sampled_records(tmp_path / "warc")
    assert len(samples) == 600
    assert {sample.split(b"\r\n")[1] for sample in samples} == {
        b"WARC-Type: response", b"WARC-Type: request", b"WARC-Type: metadata"
    }  # fmt: skip
    made, record = Zstd(trained_dictionary(samples)), samples[-3]
    assert len(made.member(record)) < 0.75 * len(Zstd().member(record))
