"""Seeds: read from what the operator named, and kept through any crash."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.crawler.job.seeds import (
    ORDER,
    BadSeed,
    Seed,
    SeedBook,
    SeedBookDamaged,
    SeedList,
    SourceTags,
    inherited,
    is_begun,
    is_queued_again,
    none_left,
    queued_again,
    read_seeds,
)
from anabranch.crawler.outcomes.errors import DiskFull, ExitCode, NoFolder
from anabranch.dedup.files import durable
from tests.patience import HANG_S

#: Adds seeds to a book and is killed when a share of the next write has been made.
DYING = """
import os, pathlib, signal, sys
from anabranch.crawler.job.seeds import Seed, SeedBook

path, before, share = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
book = SeedBook(path)
for number in range(before):
    book.add(Seed(url=f"http://before.test/{number}", source="x"))
write = os.write

def dying(fd, data):
    write(fd, bytes(data)[: int(len(data) * share)])
    os.kill(os.getpid(), signal.SIGKILL)

os.write = dying
os.pwrite = lambda fd, data, offset: dying(fd, data)
book.add_all(Seed(url=f"http://a.test/{number}", source="x") for number in range(5000))
"""


def read(*arguments: str, stdin: bytes = b"") -> SeedList:
    return read_seeds(arguments, io.BytesIO(stdin))


def sources(seeds: SeedList) -> list[tuple[str, str]]:
    return [(seed.url, seed.source) for seed in seeds.seeds]


def only_bad(seeds: SeedList) -> BadSeed:
    assert seeds.seeds == ()
    (bad,) = seeds.bad
    return bad


class TestReading:
    def test_an_argument_that_is_no_file_is_a_url(self) -> None:
        """A URL, or a host: a missing scheme means http."""
        assert sources(read("www.a.test", "https://b.test/x#f")) == [
            ("http://www.a.test/", "command line"),
            ("https://b.test/x", "command line"),
        ]

    def test_a_file_has_one_url_a_line(self, tmp_path: Path) -> None:
        """Comments, blank lines, CRLF and a byte order mark are ignored; the source is file and line."""
        file = tmp_path / "portals.txt"
        file.write_bytes(
            b"\xef\xbb\xbfwww.a.test\r\n\r\n# a comment\r\n  # another\nhttp://b.test/#x\t# why\n\nhttp://c.test/no#comment"
        )
        assert sources(read(str(file))) == [
            ("http://www.a.test/", f"{file}:1"),
            ("http://b.test/", f"{file}:5"),
            ("http://c.test/no", f"{file}:7"),
        ]

    def test_a_minus_is_standard_input(self) -> None:
        """Its lines are read like a file's."""
        assert sources(read("-", stdin=b"# x\n\na.test\n")) == [("http://a.test/", "-:3")]

    def test_a_file_named_like_a_host_is_a_file_and_a_folder_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A name that exists as a file is a seed file; a folder may have the name of its host."""
        monkeypatch.chdir(tmp_path)
        Path("a.test").write_text("b.test\n")
        Path("c.test").mkdir()
        assert sources(read("a.test", "c.test")) == [
            ("http://b.test/", "a.test:1"),
            ("http://c.test/", "command line"),
        ]

    @pytest.mark.parametrize("name", ["{tmp}/seeds", "./seeds", "seeds", "seeds/", "../{name}/seeds"])
    def test_a_folder_is_said_to_be_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """It would be a host's name otherwise, and nobody's page; a scheme says that it is one."""
        monkeypatch.chdir(tmp_path)
        Path("seeds").mkdir()
        assert "it is a folder" in only_bad(read(name.format(tmp=tmp_path, name=tmp_path.name))).reason
        assert sources(read("http://seeds/")) == [("http://seeds/", "command line")]

    def test_where_the_seeds_were_named_is_told(self) -> None:
        """An order is no command line."""
        found = read_seeds(["a.test", "::"], io.BytesIO(), ORDER)
        assert [found.seeds[0].source, found.bad[0].source] == ["crawl order", "crawl order"]

    def test_a_pipe_is_a_file_too(self, tmp_path: Path) -> None:
        """`<(command)` gives a path that is no regular file."""
        read_end, write_end = os.pipe()
        os.write(write_end, b"a.test\n")
        os.close(write_end)
        try:
            assert [seed.url for seed in read(f"/dev/fd/{read_end}").seeds] == ["http://a.test/"]
        finally:
            os.close(read_end)

    def test_each_url_is_once_where_it_was_named_first(self) -> None:
        """Spellings of one URL are one seed, over all arguments."""
        assert sources(read("a.test", "-", "HTTP://A.test:80/", stdin=b"http://a.test/#x\nb.test")) == [
            ("http://a.test/", "command line"),
            ("http://b.test/", "-:2"),
        ]

    def test_a_bad_line_is_told_and_skipped(self) -> None:
        """The others count; what cannot be decoded is shown with escapes."""
        found = read("-", stdin=b"a.test\nftp://b.test/\n\xff\xfe\nc.test")
        assert [seed.url for seed in found.seeds] == ["http://a.test/", "http://c.test/"]
        assert [(bad.text, bad.source) for bad in found.bad] == [("ftp://b.test/", "-:2"), ("\\xff\\xfe", "-:3")]
        assert found.bad[0].reason == "it is not an http or https URL; write it like http://example.org/"
        assert "UTF-8" in found.bad[1].reason

    @pytest.mark.parametrize(
        ("seed", "reason"),
        [
            ("http://a.test:99999/", "the port 99999 is not between 0 and 65535"),
            ("http://a b.test/", "the host 'a b.test' has a space"),
            ("http://[::1", "the IPv6 address [::1 has no closing bracket"),
            ("http//a.test", "it is not an http or https URL"),
        ],
    )
    def test_the_part_of_a_seed_that_is_wrong_is_named(self, seed: str, reason: str) -> None:
        """With how a seed is written."""
        [bad] = read("-", stdin=seed.encode()).bad
        assert bad.reason == f"{reason}; write it like http://example.org/"

    @pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-32"])
    def test_a_file_that_is_no_text_is_told_once_and_names_no_seed(self, tmp_path: Path, charset: str) -> None:
        """A picture, a database, or text in UTF-16: what looks like a host in it is none."""
        file = tmp_path / "seeds.txt"
        file.write_bytes(b"a.test\n" + "http://b.test/\n\u4e00\u4e00\n".encode(charset) * 1000)
        found = read(str(file))
        assert found.seeds == ()
        assert found.bad == (
            BadSeed(text=str(file), source=f"{file}:2", reason="the file is not UTF-8 text; save it as UTF-8"),
        )

    def test_of_lines_that_are_not_utf_8_one_is_quoted(self) -> None:
        """The others are counted."""
        found = read("-", stdin="http://a.test/\u00e4\n".encode("latin-1") * 1000 + b"b.test")
        assert [seed.url for seed in found.seeds] == ["http://b.test/"]
        assert [(bad.source, bad.reason) for bad in found.bad] == [
            ("-:1", "it is not UTF-8; save the file as UTF-8"),
            ("-", "999 more lines are not UTF-8"),
        ]

    def test_a_byte_order_mark_counts_on_the_first_line_only(self) -> None:
        """Elsewhere it is part of the text, and no URL begins with it."""
        assert [bad.source for bad in read("-", stdin=b"a.test\n\xef\xbb\xbfb.test").bad] == ["-:2"]

    def test_a_long_bad_line_is_cut(self) -> None:
        """A seed file may be anything; its lines do not flood the terminal."""
        assert len(only_bad(read("-", stdin=b"x " * 9999)).text) == 200
        assert len(only_bad(read("-", stdin=b"\xff" * 9999)).text) == 200

    def test_of_many_that_are_no_seeds_some_are_told(self) -> None:
        """One line is no place for all of a file."""
        assert none_left(["a: no"]) == "no seed is left; a: no"
        assert none_left([f"{number}: no" for number in range(1000)]) == (
            "no seed is left; 0: no; 1: no; 2: no; 3: no; 4: no; and 995 more"
        )

    @pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", b"\xef\xbb\xbf"])
    def test_an_empty_file_is_told(self, tmp_path: Path, content: bytes) -> None:
        """A file without a seed is a slip of the operator."""
        file = tmp_path / "empty.txt"
        file.write_bytes(content)
        bad = only_bad(read(str(file)))
        assert (bad.text, bad.source) == (str(file), str(file))
        assert "no URL" in bad.reason

    @pytest.mark.parametrize("name", ["missing.txt", "seeds/Portals.TXT", "x.seeds"])
    def test_a_missing_seed_file_is_not_taken_for_a_host(self, name: str) -> None:
        """`portals.txt` that does not exist is a slip, unless a scheme says that it is a URL."""
        assert "no such file" in only_bad(read(name)).reason
        assert sources(read(f"http://{name}"))[0][1] == "command line"

    @pytest.mark.parametrize("name", ["/no/such/list", "./list", "../nosuchlist"])
    def test_a_path_without_a_file_is_told_as_one(self, name: str) -> None:
        """It can be no URL, whatever its ending, and nothing written before it makes it one."""
        assert only_bad(read(name)).reason == "there is no such file"

    @pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/no/such/place"])
    def test_what_can_be_neither_file_nor_url_is_told(self, name: str) -> None:
        """Names that the file system refuses are no crash. (A long one is a host to the URL parser, or not.)"""
        found = read(name)
        assert len(found.seeds) + len(found.bad) == 1

    def test_a_file_that_cannot_be_read_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The reason is the system's."""
        file = tmp_path / "locked"
        file.write_text("a.test\n")

        def refuse(self: Path, mode: str) -> None:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "open", refuse)
        assert only_bad(read(str(file))).reason == "it cannot be read: Permission denied"


#: What may become of a file.
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "the last line is gone": lambda text: b"".join(text.splitlines(keepends=True)[:-1]),
    "the first line is gone": lambda text: b"".join(text.splitlines(keepends=True)[1:]),
    "two lines changed places": lambda text: b"".join(text.splitlines(keepends=True)[i] for i in (1, 0, 2)),
    "half of it": lambda text: text[: len(text) // 2],
    "nothing is left": lambda _: b"",
    "zeros": lambda text: bytes(len(text)),
    "zeros at the end": lambda text: text[:-20] + bytes(20),
}

A = Seed(url="http://a.test/", source="portals.txt:1")
B = Seed(url="http://b.test/", source="redirect", via="http://a.test/")
C = Seed(url="http://c.test/", source="command line")
D = Seed(url="http://d.test/", source="command line")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seeds.jsonl"


class TestBook:
    def test_seeds_come_back_in_order(self, path: Path) -> None:
        """Added seeds are there after reopening, with source and via, and more can be added."""
        with SeedBook(path) as book:
            assert book.add(A)
            assert book.add(B)
            assert list(book) == [A, B]
        with SeedBook(path) as book:
            assert list(book) == [A, B]
            book.add(C)
        with SeedBook(path) as book:
            assert list(book) == [A, B, C]
            assert len(book) == 3
            assert C.url in book
            assert "http://d.test/" not in book

    def test_the_file_is_one_object_a_line(self, path: Path) -> None:
        """{"url", "source", "via"} and a checksum, for people and tools."""
        with SeedBook(path) as book:
            book.add_all([A, B])
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [len(line.pop("crc")) for line in lines] == [8, 8]
        assert lines == [
            {"url": A.url, "source": A.source, "via": None},
            {"url": B.url, "source": B.source, "via": A.url},
        ]

    def test_adding_is_idempotent(self, path: Path) -> None:
        """A URL is in the book once; the first to name it wins, in a batch as well."""
        with SeedBook(path) as book:
            assert book.add_all([A, Seed(url=A.url, source="again")]) == (A,)
            assert not book.add(Seed(url=A.url, source="again"))
            assert book.add_all([A, B, C]) == (B, C)
            size = path.stat().st_size
            assert book.add_all([A, B, C]) == ()
            assert path.stat().st_size == size
        with SeedBook(path) as book:
            assert list(book) == [A, B, C]

    def test_a_torn_last_line_is_cut_wherever_it_was_torn(self, path: Path) -> None:
        """A crash while writing loses what did not count yet, and nothing else; the next line is whole."""
        count = path.with_name("seeds.jsonl.count")
        with SeedBook(path) as book:
            book.add(A)
            counted, said = path.stat().st_size, count.read_bytes()
            book.add(B)
        whole = path.read_bytes()
        for size in range(counted, len(whole)):
            path.write_bytes(whole[:size])
            count.write_bytes(said)
            with SeedBook(path) as book:
                assert list(book) == [A]
                book.add(C)
            with SeedBook(path) as book:
                assert list(book) == [A, C]

    def test_a_kill_before_the_lines_are_counted_is_no_damage(self, path: Path) -> None:
        """The count is written after the book, so it may be behind: nothing is lost, and the next run counts again."""
        count = path.with_name("seeds.jsonl.count")
        with SeedBook(path) as book:
            book.add(A)
            said = count.read_bytes()
            book.add(B)
            now = count.read_bytes()
        for left in (said, None):
            count.unlink() if left is None else count.write_bytes(left)
            with SeedBook(path) as book:
                assert list(book) == [A, B]
                book.add_all([])
            assert count.read_bytes() == now

    def test_lines_of_an_older_program_are_read(self, path: Path) -> None:
        """They have no checksum, and stand before those that have."""
        old = [{"url": seed.url, "source": seed.source, "via": seed.via} for seed in (A, B)]
        path.write_text("".join(json.dumps(line) + "\n" for line in old))
        for _ in range(2):
            with SeedBook(path) as book:
                assert list(book)[:2] == [A, B]
                book.add(C)
        with SeedBook(path) as book:
            assert list(book) == [A, B, C]

    def test_a_torn_line_of_an_older_program_is_told(self, path: Path) -> None:
        """Its book has no count: more lines may have stood behind, and their hosts would be out of the scope."""
        old = [{"url": seed.url, "source": seed.source, "via": seed.via} for seed in (A, B)]
        whole = "".join(json.dumps(line) + "\n" for line in old)
        path.write_text(whole[:-5])
        with pytest.raises(SeedBookDamaged, match=r"seeds\.jsonl:2: the last line is cut off; restore the file"):
            SeedBook(path)
        assert path.read_text() == whole[:-5]

    @pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
    def test_whatever_is_not_what_was_written_is_told(self, path: Path, damage: Callable[[bytes], bytes]) -> None:
        """Lines that miss, changed places or other bytes: nothing is judged by what is left."""
        with SeedBook(path) as book:
            book.add_all([A, B])
            book.add(C)
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(SeedBookDamaged, match=r"seeds\.jsonl.*restore the file from a copy, or remove it and"):
            SeedBook(path)

    def test_every_flipped_bit_is_told(self, path: Path) -> None:
        """In the book and in its count alike."""
        with SeedBook(path) as book:
            book.add_all([A, B])
        for file in (path, path.with_name("seeds.jsonl.count")):
            whole = file.read_bytes()
            for place in range(len(whole)):
                file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
                with pytest.raises(SeedBookDamaged):
                    SeedBook(path)
            file.write_bytes(whole)

    def test_a_book_that_is_gone_is_told(self, path: Path) -> None:
        """Its count says that there was one: the job is begun, and its seeds are lost."""
        with SeedBook(path) as book:
            book.add(A)
        path.unlink()
        assert is_begun(path)
        with pytest.raises(SeedBookDamaged, match="1 lines with"):
            SeedBook(path)

    @pytest.mark.parametrize(
        "line",
        [b"x", b"", b"[]", b"{}", b"\xff", b"\0\0", b'{"url": 1, "source": "", "via": null}',
         b'{"url": "http://A.test", "source": "", "via": null}', b'{"url": "http://a.test/"}'],
    )  # fmt: skip
    def test_a_damaged_line_is_told_and_nothing_is_touched(self, path: Path, line: bytes) -> None:
        """Only the last line can be torn by a crash: any other that cannot be read needs the operator."""
        with SeedBook(path) as book:
            book.add(A)
        before = path.read_bytes() + line + b"\n"
        path.write_bytes(before)
        with pytest.raises(SeedBookDamaged, match=r"seeds\.jsonl:2: the line is damaged") as raised:
            SeedBook(path)
        assert raised.value.exit_code is ExitCode.BAD_ORDER
        assert path.read_bytes() == before

    def test_an_added_seed_is_synced_and_so_is_the_folder(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before `add` returns, the bytes and the name of the file are on the medium: else power loss could take them."""
        synced: list[tuple[str, int]] = []

        def note(handle: int) -> None:
            status = os.fstat(handle)
            kind = "folder" if os.path.samestat(status, path.parent.stat()) else "file"
            synced.append((kind, status.st_size if kind == "file" else 0))

        with SeedBook(path) as book:
            book.add(A)
        monkeypatch.setattr(os, "fsync", note)
        monkeypatch.setattr(durable, "sync_file", note)
        with SeedBook(path) as book:
            assert synced == []
            book.add(B)
            assert synced == [("folder", 0), ("file", path.stat().st_size)]
            synced.clear()
            book.add_all([C, D])
            assert synced == [("file", path.stat().st_size), ("folder", 0)]
            synced.clear()
            book.add(A)
            assert synced == []

    @pytest.mark.parametrize("before", [0, 3])
    @pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
    def test_seeds_that_are_added_together_are_in_the_book_all_or_none(
        self, path: Path, before: int, share: float
    ) -> None:
        """Kill -9 at any point of the write: a run that goes on either has all of them, or reads them again."""
        done = subprocess.run(
            [sys.executable, "-c", DYING, str(path), str(before), str(share)], check=False, timeout=HANG_S
        )
        assert done.returncode == -signal.SIGKILL
        with SeedBook(path) as book:
            assert len(book) in {before, before + 5000}
            assert is_begun(path) == bool(book)
            assert book.add(A)
        with SeedBook(path) as book:
            assert list(book)[-1] == A

    def test_a_full_disk_is_told_and_the_book_stays_whole(self, path: Path) -> None:
        """A batch that did not fit does not count and leaves no torn line before the next."""
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        with SeedBook(path) as book:
            book.add(A)
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
                with pytest.raises(DiskFull, match=r"seeds\.jsonl"):
                    book.add(B)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                signal.signal(signal.SIGXFSZ, before)
            assert list(book) == [A]
            assert book.add(C)
        with SeedBook(path) as book:
            assert list(book) == [A, C]

    def test_a_missing_folder_is_told(self, tmp_path: Path) -> None:
        """The error names the file and is for the operator."""
        with pytest.raises(NoFolder, match=r"state/seeds\.jsonl"):
            SeedBook(tmp_path / "state" / "seeds.jsonl")


def seeds(*urls: str) -> list[Seed]:
    return [Seed(url=url, source="given") for url in urls]


def test_a_payload_leads_back_to_its_seed() -> None:
    """For the first, the last, and where numbers get a second byte."""
    urls = [f"http://{number}.test/" for number in range(300)]
    tags = SourceTags(seeds(*urls))
    assert [tags.tag_of(tags.payload_of(url)) for url in urls] == urls
    assert [len(tags.payload_of(urls[number]) or b"") for number in (0, 255, 256)] == [1, 1, 2]


def test_a_number_means_the_same_seed_in_the_next_run() -> None:
    """The book keeps its order; seeds that come later do not move those before them."""
    first = SourceTags(seeds("http://a.test/", "http://b.test/"))
    payload = first.payload_of("http://b.test/")
    again = SourceTags(seeds("http://a.test/", "http://b.test/"))
    again.note(seeds("http://b.test/", "http://c.test/"))
    assert again.tag_of(payload) == "http://b.test/"
    assert again.tag_of(again.payload_of("http://c.test/")) == "http://c.test/"


@pytest.mark.parametrize("payload", [None, b"", b"\x07", b"an embedder's own payload"])
def test_a_payload_that_names_no_seed_has_no_tag(payload: bytes | None) -> None:
    """Jobs of earlier versions and embedders have others."""
    assert SourceTags(seeds("http://a.test/")).tag_of(payload) is None


def test_the_payload_of_a_url_that_is_queued_again_names_the_same_seed() -> None:
    """The links of its page inherit the payload without the mark."""
    tags = SourceTags(seeds(*(f"http://{number}.test/" for number in range(300))))
    for payload in (
        tags.payload_of("http://0.test/"),
        tags.payload_of("http://7.test/"),
        tags.payload_of("http://299.test/"),
        None,
    ):
        again = queued_again(payload)
        assert (is_queued_again(payload), is_queued_again(again), queued_again(again)) == (False, True, again)
        assert (inherited(again), inherited(payload)) == (payload, payload)
        assert tags.tag_of(again) == tags.tag_of(payload)
    assert SourceTags().payload_of("http://a.test/") is None
