"""The sections [urls], [scope], [write], [logs] and [report]: defaults, and what is refused in words that name the key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import dump_order
from anabranch.crawler.order.sections import LogsSection, ReportSection, ScopeSection, UrlsSection, WriteSection
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.report.progress import Display


@pytest.fixture(autouse=True)
def _no_settings_of_the_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


def test_traps_are_closed_by_default() -> None:
    """The numbers are those that operators know from Heritrix, the length that of a browser's address line."""
    scope = ScopeSection()
    assert (scope.scope, scope.max_hops, scope.max_embeds) == ("host", 20, 2)
    assert (scope.max_path_repeats, scope.max_path_depth, scope.max_url_length) == (2, 20, 2083)
    assert UrlsSection().canonicalization == ("userinfo", "default-port", "fragment", "session-ids")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[urls]\ncanonicalization = ['fragmen']",
            "[urls] canonicalization has a fault: rule 'fragmen' is unknown; choose of ",
        ),
        ("[urls]\ncanonicalization = 'www'", "[urls] canonicalization must be a list; not 'www'"),
        (
            "[scope]\nscope = 'all'",
            "[scope] scope must be 'host', 'prefix', 'domain', 'surt', 'any' or 'page'; not 'all'",
        ),
        (
            "[scope]\nexclude = ['x', '(']",
            "[scope] exclude has '(', which is no regular expression: missing ), unterminated ",
        ),
        ("[scope]\ninclude = ['']", "[scope] include must not be empty; not ''"),
        ("[scope]\nblock = ['*']", "[scope] block has '*', which is no regular expression: nothing to repeat"),
        (
            "[scope]\naccept = ['com,exa mple']",
            "[scope] accept has a fault: SURT prefix 'com,exa mple' is refused: it is empty",
        ),
        (
            "[scope]\nreject = ['com,example']",
            "[scope] reject has a fault: SURT prefix 'com,example' is refused: each label",
        ),
        ("[scope]\nrules = ['mine']", "[scope] rules has 'mine', which is not of the form package.module:function"),
        ("[scope]\nschemes = ['ftp']", "[scope] schemes must be 'http' or 'https'; not 'ftp'"),
        ("[scope]\nschemes = []", "[scope] schemes must not be empty; not []"),
        ("[scope]\nsimilar = 'yes'", "[scope] similar must be '', 'published' or 'site-bound'; not 'yes'"),
        ("[scope]\nmax_path_depth = -1", "[scope] max_path_depth must be at least 0; not -1"),
        ("[scope]\nmax_embed = 1", "[scope] max_embed is unknown; did you mean max_embeds?"),
    ],
)
def test_a_fault_is_named_with_its_key(text: str, line: str, tmp_path: Path) -> None:
    """One line: the file, the key, what is wrong."""
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(OrderError) as raised:
        load_order(file, {})
    said = str(raised.value)
    assert "\n" not in said
    assert said.startswith(f"{file}: {line}")


def test_a_function_is_not_imported_before_the_crawl_begins() -> None:
    """Reading an order runs nobody's code."""
    assert ScopeSection(rules=["no.such:rule"]).rules == ("no.such:rule",)
    assert UrlsSection(canonicalization=["no.such:rule"]).canonicalization == ("no.such:rule",)


def test_the_environment_writes_lists_as_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lists are written so."""
    monkeypatch.setenv("ANABRANCH_SCOPE__REJECT", "a.test http://b.test/x/")
    monkeypatch.setenv("ANABRANCH_URLS__CANONICALIZATION", "www fragment")
    order = load_order(None, {})
    assert order.scope.reject == ("a.test", "http://b.test/x/")
    assert order.urls.canonicalization == ("www", "fragment")


def test_the_sections_are_read_as_they_were_dumped(tmp_path: Path) -> None:
    """The order of a job is kept as TOML."""
    file = tmp_path / "x.toml"
    file.write_text(
        "[scope]\nexclude = ['\\.zip$']\naccept = ['a.test']\nsimilar = 'site-bound'\n[urls]\ncanonicalization = []"
    )
    order = load_order(file, {})
    file.write_text(dump_order(order))
    assert load_order(file, {}) == order


def test_the_defaults_write_pages_and_no_warc() -> None:
    """An archive is asked for."""
    section = WriteSection()
    assert (section.warc, section.pages, section.links, section.revisit) == (False, True, False, True)
    assert section.warc_size_bytes == 1_000_000_000


def test_sizes_are_read_as_people_write_them() -> None:
    """The whole order reads sizes so."""
    assert WriteSection.model_validate({"warc_size": "10MiB"}).warc_size_bytes == 10 << 20


@pytest.mark.parametrize(
    "bad",
    [
        *({"warc_prefix": "a/b"}, {"warc_prefix": ".a"}, {"warc_prefix": ""}, {"warc_size": "1KB"}),
        *({"compression": "br"}, {"deflate": "zstd"}, {"zstd_dictionary": "a\0b", "compression": "zstd"}),
    ],
)
def test_what_makes_no_file_is_refused(bad: dict[str, object]) -> None:
    """A prefix is part of a file's name; a file holds more than its first record."""
    with pytest.raises(ValidationError):
        WriteSection.model_validate(bad)


def test_archives_are_sought_beside_the_file_that_names_them(tmp_path: Path) -> None:
    """As seed files are; the URL of a CDX server stays as it is. One archive needs no brackets."""
    (tmp_path / "order.toml").write_text(
        "[write]\nrevisit_of = ['jobs/a', '/b.cdxj', 'https://cdx.test:8080/c/cdx?k=1']\n"
    )
    order = load_order(tmp_path / "order.toml", {})
    assert order.write.revisit_folders == (str(tmp_path / "jobs/a"), "/b.cdxj")
    assert order.write.cdx_servers == ("https://cdx.test:8080/c/cdx?k=1",)
    (tmp_path / "order.toml").write_text("[write]\nrevisit_of = 'jobs/a'\n")
    assert load_order(tmp_path / "order.toml", {}).write.revisit_folders == (str(tmp_path / "jobs/a"),)


@pytest.mark.parametrize(
    "archive",
    [
        "ftp://cdx.test/",
        "http://",
        "http:///cdx",
        "http://cdx.test/a b",
        "http://cdx.test/#a",
        "http://u:p@cdx.test/",
        "a\0b",
    ],
)
def test_what_is_no_archive_is_refused(archive: str) -> None:
    """A password would be in the job's order, which everyone can read."""
    with pytest.raises(ValidationError):
        WriteSection.model_validate({"revisit_of": [archive]})


def test_a_dictionary_is_sought_beside_the_file_that_names_it(tmp_path: Path) -> None:
    """As seed files are; a job's own order has its full path."""
    (tmp_path / "order.toml").write_text("[write]\ncompression = 'zstd'\nzstd_dictionary = 'dictionary'\n")
    order = load_order(tmp_path / "order.toml", {})
    assert order.write.zstd_dictionary == str(tmp_path / "dictionary")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "order.toml").write_text(dump_order(order))
    assert load_order(tmp_path / "job" / "order.toml", {}) == order


def test_a_dictionary_without_zstd_is_refused_in_one_line(tmp_path: Path) -> None:
    """It would have no effect."""
    (tmp_path / "order.toml").write_text("[write]\nzstd_dictionary = 'dictionary'\n")
    with pytest.raises(OrderError) as error:
        load_order(tmp_path / "order.toml", {})
    assert str(error.value).startswith(f"{tmp_path}/order.toml: [write] zstd_dictionary: needs compression = 'zstd'; ")


def test_without_anything_said_the_defaults_hold() -> None:
    """Words for the eye on standard error, a display that suits its terminal, lines as often as Heritrix's."""
    logs, report = LogsSection(), ReportSection()
    assert (logs.format, logs.file) == ("console", "")
    assert (report.progress, report.interval_s, report.statistics_interval_s, report.reports) == (
        "auto",
        10.0,
        20.0,
        True,
    )


def test_what_is_dumped_is_read_as_the_same() -> None:
    """Durations as people write them, paths in full."""
    logs = LogsSection.model_validate({"format": "json", "file": "x.log"})
    again = LogsSection.model_validate(logs.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again.file == str(Path("x.log").absolute())
    report = ReportSection.model_validate({"interval": "1m", "statistics_interval": 5})
    dumped = report.model_dump(mode="json", by_alias=True)
    assert (dumped["interval"], dumped["statistics_interval"]) == ("1m", "5s")
    assert ReportSection.model_validate(dumped) == report


def test_the_display_knows_every_word_of_the_order() -> None:
    """Each is a way to show progress."""
    assert all(ReportSection(progress=display.value).progress == display.value for display in Display)


@pytest.mark.parametrize(
    ("section", "given"),
    [
        (LogsSection, {"format": "xml"}),
        (LogsSection, {"fromat": "json"}),
        (ReportSection, {"interval": "0s"}),
        (ReportSection, {"progress": "rich"}),
        (ReportSection, {"statistics_interval": -1}),
    ],
)
def test_what_makes_no_sense_is_refused(section, given) -> None:
    """Also a key that nobody knows."""
    with pytest.raises(ValidationError):
        section.model_validate(given)
