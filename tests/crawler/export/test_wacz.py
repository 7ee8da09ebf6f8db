"""A WACZ: files stored and listed as WACZ 1.1.1 wants them, and readable as ReplayWeb.page reads ZIP files."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import struct
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import pytest

from anabranch.crawler.export import wacz
from anabranch.crawler.export.cut import JobCut, cut_of
from anabranch.crawler.export.wacz import WaczFacts, write_wacz
from anabranch.crawler.outcomes.errors import UsageError
from tests.crawler.archive.exchanges import START_S
from tests.crawler.export.jobs import entry, finished, running

A, B, C = "http://a.test/1", "http://a.test/2", "http://b.test/"


def written(cut: JobCut, tmp_path: Path) -> tuple[ZipFile, WaczFacts]:
    facts = write_wacz(cut, tmp_path / "x.wacz", tmp_path, START_S)
    return ZipFile(tmp_path / "x.wacz"), facts


def lines(package: ZipFile, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in package.read(name).splitlines()]


async def test_seeds_and_other_documents_have_lists_of_their_own(tmp_path: Path) -> None:
    """A seed whatever it was answered; others only if they are documents that were found by a link."""
    job = await finished(
        tmp_path / "job",
        entry(A, status=301),
        entry(B, hops="L"),
        entry("http://a.test/3", hops="L", status=404),
        entry("http://a.test/4", hops="LE"),
        entry("http://a.test/5.png", hops="L", mime="image/png"),
        entry("http://a.test/6.pdf", hops="LL", mime="application/pdf"),
    )
    package, facts = written(cut_of(job), tmp_path)
    head, *seeds = lines(package, "pages/pages.jsonl")
    assert head == {"format": "json-pages-1.0", "id": "pages", "title": "Seeds", "hasText": False}
    assert [(page["url"], page["ts"]) for page in seeds] == [(A, "2026-01-01T00:00:00.250Z")]
    head, *others = lines(package, "pages/extraPages.jsonl")
    assert head["id"] == "extraPages"
    assert [page["url"] for page in others] == [B, "http://a.test/6.pdf"]
    assert len({page["id"] for page in seeds + others}) == 3
    assert facts == WaczFacts(seeds=1, others=2, records=6, warcs=1)
    described = json.loads(package.read("datapackage.json"))
    assert (described["mainPageURL"], described["mainPageDate"]) == (A, "2026-01-01T00:00:00.250Z")


async def test_titles_and_texts_are_those_of_the_job(tmp_path: Path) -> None:
    """If its pages have some; the head says so."""
    job = await finished(tmp_path / "job", entry(A))
    page = json.loads((job / "pages.jsonl").read_text())
    (job / "pages.jsonl").write_text(json.dumps(page | {"title": "A title", "text": "Its text"}) + "\nno page\n")
    cut = cut_of(job)
    package, _ = written(cut, tmp_path)
    head, seed = lines(package, "pages/pages.jsonl")
    assert head["hasText"] is True
    assert (seed["title"], seed["text"]) == ("A title", "Its text")
    assert cut.damaged == {"pages.jsonl": 1}


async def test_each_file_is_listed_with_its_size_and_digest(tmp_path: Path) -> None:
    """Names are such as Data Package allows; the list has a digest of its own."""
    job = await finished(tmp_path / "job", entry(A))
    for file in (job / "warc").iterdir():  # a machine may have such a name
        file.rename(file.with_name(f"Üpper_Case.{file.name.partition('.')[2]}"))
    package, _ = written(cut_of(job), tmp_path)
    described = json.loads(package.read("datapackage.json"))
    assert described["wacz_version"] == "1.1.1"
    for resource in described["resources"]:
        content = package.read(resource["path"])
        assert resource["bytes"] == len(content)
        assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert re.fullmatch(r"[-a-z0-9._/]+", resource["name"])
    listed = {resource["path"] for resource in described["resources"]}
    assert {*package.namelist()} - listed == {"datapackage.json", "datapackage-digest.json"}
    digest = json.loads(package.read("datapackage-digest.json"))
    assert digest["hash"] == f"sha256:{hashlib.sha256(package.read('datapackage.json')).hexdigest()}"


async def test_warc_files_and_the_index_are_stored_as_they_are(tmp_path: Path) -> None:
    """So that a reader takes single records out of them; the index says where."""
    job = await finished(tmp_path / "job", entry(A), entry(B))
    package, _ = written(cut_of(job), tmp_path)
    (warc,) = (job / "warc").glob("*.warc.gz")
    assert package.read(f"archive/{warc.name}") == warc.read_bytes()
    for name in (f"archive/{warc.name}", "indexes/index.cdx.gz"):
        assert package.getinfo(name).compress_type == ZIP_STORED
    for line in gzip.decompress(package.read("indexes/index.cdx.gz")).splitlines():
        fields = json.loads(line.split(b" ", 2)[2])
        offset, length = int(fields["offset"]), int(fields["length"])
        record = gzip.decompress(package.read(f"archive/{fields['filename']}")[offset : offset + length])
        assert f"WARC-Target-URI: {fields['url']}\r\n".encode() in record


async def test_the_index_is_in_blocks_that_are_found_by_their_first_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up decompresses one block."""
    monkeypatch.setattr(wacz, "_BLOCK_LINES", 2)
    names = [f"http://{name}.test/" for name in "cab"]
    package, _ = written(cut_of(await finished(tmp_path / "job", *map(entry, names))), tmp_path)
    meta, *keys = package.read("indexes/index.idx").splitlines()
    assert meta.startswith(b"!meta 0 {")
    blocks = package.read("indexes/index.cdx.gz")
    found = []
    for key in keys:
        place = json.loads(key.split(b" ", 2)[2])
        block = gzip.decompress(blocks[place["offset"] : place["offset"] + place["length"]])
        assert block.startswith(b" ".join(key.split(b" ", 2)[:2]))
        found += block.splitlines()
    assert [line.split(b")")[0] for line in found] == [b"test,a", b"test,b", b"test,c"]


async def test_a_file_has_a_field_in_its_own_header_only_if_it_has_one_in_the_list(tmp_path: Path) -> None:
    """ReplayWeb.page takes the content to begin behind the name otherwise, and large files have a field there."""
    package, _ = written(cut_of(await finished(tmp_path / "job", entry(A))), tmp_path)
    data = (tmp_path / "x.wacz").read_bytes()
    for info in package.infolist():
        (own,) = struct.unpack_from("<H", data, info.header_offset + 28)
        assert bool(own) == bool(info.extra)
        assert info.extra


async def test_a_growing_file_is_stored_up_to_what_counts(tmp_path: Path) -> None:
    """Under the name that it will have."""
    async with running(tmp_path / "job") as journal:
        await journal.write(entry(A))
        cut = cut_of(tmp_path / "job")
        await journal.write(entry(B))
        package, facts = written(cut, tmp_path)
    (name,) = (name for name in package.namelist() if name.startswith("archive/"))
    assert name.endswith(".warc.gz")
    assert len(package.read(name)) == cut.warcs[0].size
    assert (facts.seeds, facts.records) == (1, 1)


async def test_zstd_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    """So is a job without WARC files."""
    cut = cut_of(await finished(tmp_path / "job", entry(A), compression="zstd"))
    with pytest.raises(UsageError, match=r"no reader of WACZ knows zstd; `anabranch archive convert .* --warcs FOLDER"):
        written(cut, tmp_path)
    with pytest.raises(UsageError, match="has no WARC files"):
        written(cut_of(await finished(tmp_path / "other", entry(A), warc=False)), tmp_path)
    assert not (tmp_path / "x.wacz").exists()
