"""Seeds: read from what the operator named, and numbered in the payloads of URLs."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from anabranch.crawler.job.seeds import (
    ORDER,
    BadSeed,
    Seed,
    SeedList,
    SourceTags,
    inherited,
    is_queued_again,
    none_left,
    queued_again,
    read_seeds,
)


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
        assert found.bad[0].reason == "ftp: is neither http: nor https:; write it like http://example.org/"
        assert "UTF-8" in found.bad[1].reason

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (
                "+http://(test,a,",
                "it is a directive of Heritrix for the scope; put its SURT prefix in accept of [scope]",
            ),
            ("F+ http://a.test/ LL", "it is a line of a Heritrix journal, not a seed; give its URL alone"),
            ("Fs dns:a.test", "it is a line of a Heritrix journal, not a seed; give its URL alone"),
        ],
    )
    def test_other_lines_of_heritrix_are_refused_by_name(self, line: str, reason: str) -> None:
        """With where they go here."""
        [bad] = read("-", stdin=line.encode()).bad
        assert bad.reason == reason

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


def seeds(*urls: str) -> list[Seed]:
    return [Seed(url=url, source="given") for url in urls]


def test_a_payload_leads_back_to_its_seed() -> None:
    """For the first, the last, and where numbers get a second byte."""
    urls = [f"http://{number}.test/" for number in range(300)]
    tags = SourceTags(seeds(*urls))
    assert [tags.tag_of(tags.payload_of(url)) for url in urls] == urls
    assert [len(tags.payload_of(urls[number]) or b"") for number in (0, 255, 256)] == [1, 1, 2]


def test_a_number_means_the_same_seed_in_the_next_run() -> None:
    """Recorded seeds keep their order; those that come later do not move those before them."""
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
