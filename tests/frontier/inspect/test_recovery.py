"""Heritrix's recovery journal: what its lines mean, and what a killed Heritrix leaves of it."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.frontier.inspect.load import Known, Queued
from anabranch.frontier.inspect.recovery import RecoveryJournal, load_journal
from anabranch.frontier.records import NEW, SEEN, OutcomeKind, Verdict

#: As Heritrix 3 writes it: a seed has neither hops nor via, prerequisites are URLs, times and errors stand between.
LINES = """\
T 20260701120000000
F+ http://portal.example/  \n\
F+ dns:portal.example P http://portal.example/
Fe dns:portal.example
Fs dns:portal.example P http://portal.example/
F+ http://portal.example/robots.txt P http://portal.example/
Fs http://portal.example/robots.txt P http://portal.example/
Fe http://portal.example/
Fs http://portal.example/  \n\
F+ http://portal.example/a L http://portal.example/
F+ http://portal.example/b LE http://portal.example/
F+ http://other.example/ LX http://portal.example/
Fr http://portal.example/a
Ff http://portal.example/b LE http://portal.example/
Fd http://other.example/
Fi http://old.example/
E something went wrong
F+  \n\
"""


class Target:
    """Knows what was noted, and takes the rest once."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.queued: list[str] = []

    def note_ended(self, ended: Sequence[Known]) -> list[Verdict]:
        self.ended += [entry.url for entry in ended]
        return [NEW] * len(ended)

    def schedule_loaded(self, queued: Sequence[Queued]) -> list[Verdict]:
        return [self._take(entry.candidate.url) for entry in queued]

    def wait_until_durable(self) -> None:
        pass

    def _take(self, url: str) -> Verdict:
        if url in self.ended or url in self.queued:
            return SEEN
        self.queued.append(url)
        return NEW


def journal(folder: Path, lines: str = LINES, **options: object) -> RecoveryJournal:
    path = folder / "frontier.recover.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    return RecoveryJournal([path], **options)


def test_what_succeeded_and_what_was_imported_is_known(tmp_path: Path) -> None:
    """The first pass: Fs and Fi, for those URLs that can be fetched."""
    known = list(journal(tmp_path).known())
    assert [entry.url for entry in known] == [
        "http://portal.example/robots.txt",
        "http://portal.example/",
        "http://old.example/",
    ]
    assert {entry.outcome for entry in known} == {OutcomeKind.DONE}
    assert known[0].place == "frontier.recover.gz:7"


def test_failures_and_disregarded_urls_are_known_if_asked(tmp_path: Path) -> None:
    """Else they are tried again, as Heritrix does."""
    known = {entry.url: entry.outcome for entry in journal(tmp_path, failures=True, disregarded=True).known()}
    assert known["http://portal.example/b"] is OutcomeKind.FAILED
    assert known["http://other.example/"] is OutcomeKind.DISREGARDED


def test_what_was_queued_keeps_its_hops_and_its_via(tmp_path: Path) -> None:
    """The second pass: F+; a seed has neither."""
    first, second, *_ = journal(tmp_path).queued()
    assert (first.candidate.url, first.candidate.hops, first.via) == ("http://portal.example/", "", None)
    assert (second.candidate.url, second.candidate.hops, second.via) == (
        "http://portal.example/a",
        "L",
        "http://portal.example/",
    )


def test_a_via_of_one_character_is_none(tmp_path: Path) -> None:
    """Heritrix reads it so: it is what an empty one may be written as."""
    (entry,) = journal(tmp_path, "F+ http://a.example/ L -\n").queued()
    assert entry.via is None


def test_prerequisites_are_not_queued(tmp_path: Path) -> None:
    """DNS look-ups and robots.txt are made anew by whoever fetches; they are counted as skipped."""
    source = journal(tmp_path)
    assert not [entry for entry in source.queued() if "dns:" in entry.candidate.url or "robots" in entry.candidate.url]
    assert source.skipped == 2
    list(source)
    assert source.skipped == 2, "a second look counts nothing twice"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("LRE", "LRE"),
        ("1+" + "E" * 50, "L" + "E" * 50),
        ("12+LE", "L" * 12 + "LE"),
        ("99999+L", "99999+L"),
        ("+L", "+L"),
    ],
)
def test_a_long_path_has_one_letter_for_each_hop(tmp_path: Path, written: str, meant: str) -> None:
    """Heritrix shows the last fifty and counts the others; a limit on hops needs them all. An absurd count is left alone."""
    (entry,) = journal(tmp_path, f"F+ http://a.example/ {written} http://b.example/\n").queued()
    assert entry.candidate.hops == meant


def test_a_load_queues_what_is_left_of_the_crawl(tmp_path: Path) -> None:
    """URLs that succeeded are not fetched again, failed ones are; one call makes both passes."""
    target = Target()
    report = load_journal(journal(tmp_path), target)
    assert target.queued == ["http://portal.example/a", "http://portal.example/b", "http://other.example/"]
    assert (report.known, report.queued, report.seen, report.skipped) == (3, 3, 1, 2)
    assert report.cuts == []


def test_lines_that_no_journal_has_are_counted_once(tmp_path: Path) -> None:
    """Damage, or a version that is newer: whoever loads it must hear that something was left out."""
    strange = "F* http://a.example/\nFs\thttp://b.example/\n{}\nhttp://c.example/\n\nF+ http://d.example/ L\n"
    report = load_journal(journal(tmp_path, strange), Target())
    assert (report.unknown, report.queued, report.known) == (4, 1, 0)
    assert load_journal(journal(tmp_path), Target()).unknown == 0


def test_urls_are_changed_as_the_caller_wants_before_they_are_compared(tmp_path: Path) -> None:
    """A crawler has its own canonical form; what it cannot fetch is skipped."""
    lines = "Fs HTTP://A.example/\nF+ HTTP://A.example/\nF+ ftp://b.example/\n"
    source = journal(tmp_path, lines, canonical=lambda url: None if url.startswith("ftp") else url.lower())
    target = Target()
    load_journal(source, target, batch=1)
    assert (target.ended, target.queued, source.skipped) == (["http://a.example/"], [], 1)


def test_a_journal_cut_at_any_byte_gives_its_first_whole_lines_and_tells_the_cut(tmp_path: Path) -> None:
    """`kill -9` tears the gzip stream: half a URL is never taken for one."""
    urls = [f"http://a.example/{number * number}" for number in range(60)]
    whole = gzip.compress("".join(f"F+ {url} L\n" for url in urls).encode())
    path = tmp_path / "torn.gz"
    counts = set()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        source = RecoveryJournal([path])
        read = [entry.candidate.url for entry in source.queued()]
        assert read == urls[: len(read)]
        assert (
            source.cuts[path]
            == f"torn.gz: cut after line {len(read)}, as a killed writer leaves it; what came after it is missing"
        )
        counts.add(len(read))
    assert counts >= {0, 10, 60}


def test_a_journal_that_was_unpacked_is_read_too_and_its_torn_last_line_left_out(tmp_path: Path) -> None:
    """An operator may have unpacked it to look into it."""
    path = tmp_path / "frontier.recover"
    path.write_bytes(b"F+ http://a.example/ L\nF+ http://a.example/half-of-a-u")
    source = RecoveryJournal([path])
    assert [entry.candidate.url for entry in source.queued()] == ["http://a.example/"]
    assert source.cuts[path].startswith("frontier.recover: cut after line 1,")


def test_garbage_behind_a_journal_is_told_as_damage(tmp_path: Path) -> None:
    """A power cut may leave a tail that was never written: the checksum is wrong."""
    path = tmp_path / "frontier.recover.gz"
    path.write_bytes(gzip.compress(b"F+ http://a.example/ L\n" * 9)[:-4] + b"\x00" * 4096)
    source = RecoveryJournal([path])
    assert len(list(source.queued())) == 9
    assert source.cuts[path].startswith("frontier.recover.gz: damaged, after line 9 at the latest;")


def test_garbage_inside_a_journal_is_told_as_damage(tmp_path: Path) -> None:
    """The stream means nothing from there on."""
    sound = gzip.compress(b"F+ http://a.example/ L\n" * 9)
    path = tmp_path / "frontier.recover.gz"
    path.write_bytes(sound + sound[:10] + b"\xff" * 100)  # a second stream whose first block is of no known type
    source = RecoveryJournal([path])
    assert len(list(source.queued())) == 9
    assert source.cuts[path].startswith("frontier.recover.gz: damaged, after line 9 at the latest;")


def test_a_journal_of_several_files_is_known_in_all_of_them_before_anything_is_queued(tmp_path: Path) -> None:
    """Heritrix begins a new file at each checkpoint: a URL queued in one may have succeeded in the next."""
    first, second = tmp_path / "1.gz", tmp_path / "2.gz"
    first.write_bytes(gzip.compress(b"F+ http://a.example/ L\nF+ http://b.example/ L\n")[:-1])
    second.write_bytes(gzip.compress(b"Fs http://a.example/ L\n"))
    target = Target()
    report = load_journal(RecoveryJournal([first, second]), target)
    assert target.queued == ["http://b.example/"]
    assert report.cuts == ["1.gz: cut after line 2, as a killed writer leaves it; what came after it is missing"]


def test_bytes_that_are_no_text_stay_in_their_own_line(tmp_path: Path) -> None:
    """The Frontier refuses such a URL; the ones beside it are loaded."""
    path = tmp_path / "odd"
    path.write_bytes(b"F+ http://a.example/\xff L\nF+ http://a.example/ L\n")
    odd, sound = RecoveryJournal([path]).queued()
    assert odd.candidate.url == "http://a.example/\udcff"
    assert sound.candidate.url == "http://a.example/"


def test_a_journal_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Nothing is loaded from nothing."""
    with pytest.raises(FileNotFoundError, match=r"missing\.gz"):
        list(RecoveryJournal([tmp_path / "missing.gz"]))


def test_entries_carry_the_keys_that_they_are_known_by(tmp_path: Path) -> None:
    """Known and queued ones alike."""
    file = tmp_path / "recover"
    file.write_text("Fs http://a.test/1  \nF+ http://a.test/2 L http://a.test/\n")
    journal = RecoveryJournal([file], key=lambda url: url[-1].encode())
    assert [entry.key for entry in journal.known()] == [b"1"]
    assert [entry.candidate.key for entry in journal.queued()] == [b"2"]
