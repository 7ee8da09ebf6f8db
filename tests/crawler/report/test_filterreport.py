"""Tests of the report on a job's filter: a table in words, and one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.report.filterreport import MEAN, MEANINGS, WORST, filter_line, filter_table, known_line
from anabranch.crawler.report.table import json_facts, text_lines
from anabranch.dedup.uniq import MODES, UniqFilter, UniqParameters


def facts_of(folder: Path, mode: str) -> dict[str, float | str]:
    with UniqFilter.open(folder / mode, UniqParameters(mode=mode, levels=(1, 1), expected=1000)) as uniq:
        keys = [b"%d" % number for number in range(200)]
        uniq.add(keys)
        uniq.unseen(keys)
        uniq.count_known(100)
        return uniq.statistics().facts()


@pytest.mark.parametrize("mode", MODES)
def test_every_figure_of_every_mode_has_a_meaning(tmp_path: Path, mode: str) -> None:
    """A reader needs no source; what a mode does not have is not shown."""
    facts = facts_of(tmp_path, mode)
    assert facts.keys() <= MEANINGS.keys()
    shown = {row[0]: row[1] for row in filter_table(facts).rows}
    assert shown.keys() == facts.keys()
    assert any(name.startswith("dsbf") for name in shown) == (mode in {"both", "dsbf"})


def test_the_answers_of_the_report_add_up(tmp_path: Path) -> None:
    """The sum is the one that the meaning of `asked` states."""
    facts = facts_of(tmp_path, "both")
    assert facts["asked"] == sum(facts[name] for name in ("memory_known", "smm_new", "dsbf_new", "dropped")) == 500
    assert facts["dsbf_asked"] == facts["smm_known"] == 200


@pytest.mark.parametrize(
    ("mode", "signature", "is_said"), [("smm", "crc32", True), ("smm", None, False), ("both", "crc32", False)]
)
def test_an_estimate_that_hides_whole_sites_says_so(
    tmp_path: Path, mode: str, signature: str | None, is_said: bool
) -> None:
    """It is the mean over unrelated URLs; the worst case is that of two sites whose names collide."""
    given = UniqParameters(mode=mode, levels=(1, 1), expected=1000, signature=signature)
    with UniqFilter.open(tmp_path / "f", given) as uniq:
        facts = uniq.statistics().facts()
    ending = filter_line(facts).partition("expected lost ")[2]
    assert (ending == f"0, {MEAN}: {WORST}") == is_said
    meaning = {row[0]: row[2] for row in filter_table(facts).rows}
    assert "the mean over unrelated URLs" in meaning["expected_lost"]
    assert "in every path that both have" in meaning["smm_is_linear"]


def test_small_rates_are_shown_with_digits_that_count() -> None:
    """0.00 would say that nothing is lost."""
    lines = list(text_lines(filter_table({"filter": "both", "keys": 3.0, "smm_fill": 0.000123456})))
    assert lines[1].split() == ["filter", "both", *MEANINGS["filter"].split()]
    assert lines[2].split()[:2] == ["keys", "3"]
    assert lines[3].split()[:2] == ["smm_fill", "0.00012"]
    rows = json_facts(filter_table({"smm_fill": 0.000123456}), 10)["rows"]
    assert rows[0]["value"] == 0.000123456


def test_a_plug_ins_own_figures_come_last() -> None:
    """Whatever they are called, and escaped like all text."""
    lines = list(text_lines(filter_table({"my\x1bown": 1.0, "keys": 2})))
    assert [line.split()[0] for line in lines[1:]] == ["keys", "my\\x1bown"]


def test_people_are_told_how_many_urls_are_known_and_what_is_lost() -> None:
    """A loss that nobody would see is none."""
    assert known_line({"keys": 1671.0, "expected_lost": 1e-9}) == "1,671 URLs known; none expected lost"
    assert known_line({"keys": 1, "expected_lost": 0.25}) == "1 URL known; 0.2 expected lost"
    assert known_line({}) == ""


def test_the_line_says_who_answered_and_what_is_lost(tmp_path: Path) -> None:
    """A memory that answered nothing is left out."""
    line = filter_line(facts_of(tmp_path, "both"))
    assert line.startswith(
        "filter both: 200 URLs known, 500 questions (memory 20.0%, SMM 40.0%, DSBF 0.0%, dropped 40.0%), SMM 0.0"
    )
    assert ", DSBF 1 leaf, 0 splits, 1.0 MiB of memory, 0 B mapped, P(false drop) " in line
    assert filter_line({}) == ""
    assert filter_line({"filter": "both", "keys": 300_000, "memory_bytes": 19 << 20, "mapped_bytes": 1 << 29}) == (
        "filter both: 300,000 URLs known, 19.0 MiB of memory (66 bytes a URL), 512.0 MiB mapped"
    )
    assert filter_line({"filter": "mine", "keys": 2, "dsbf_leaves": 4, "dsbf_splits": 1, "dsbf_splitting": 1}) == (
        "filter mine: 2 URLs known, DSBF 4 leaves, 1 split (1 under way)"
    )
