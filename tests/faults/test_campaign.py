"""The campaign of faults (`scripts/faults`), a sample of it, and how it is divided, continued and judged."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from tests.acceptance.command import Ended
from tests.faults import campaign, shim
from tests.faults.cases import FAULTS, KINDS, Case, Part, Result, Results, all_cases, table
from tests.faults.shim import Call
from tests.faults.verdicts import problems_of
from tests.rows import each_row

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="needs cc")
#: The sample: a hundredth of all cases, about 55, each with two crawls.
SAMPLE = "1/100"


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sample_of_faults_loses_nothing_and_a_killed_campaign_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Always the same cases, kills among them, but for the last calls. The second run repeats the case whose line is torn."""
    asked = ["--part", SAMPLE, "--folder", str(tmp_path)]
    assert campaign.main(asked) == 0, "".join(capsys.readouterr())  # the failed cases with what was wrong
    results = Results(file := tmp_path / "part-1-of-100.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    lines.sort(key=lambda line: -Case.parse(json.loads(line)["case"]).position)  # the last one is a call of every crawl
    before = [json.loads(line)["case"] for line in lines]
    *whole, last = lines
    file.write_text("".join(whole) + last[:20])
    capsys.readouterr()
    assert campaign.main([*asked, "--resume"]) == 0
    shown = capsys.readouterr()
    found = [one.case for one in results.read()]
    assert found[: len(whole)] == before[:-1]
    assert set(found) >= set(before)
    assert len(found) == len(file.read_text().splitlines()), "none was run twice"
    assert shown.out == table(results.read()) + f"\n\n{len(found)} cases, 0 failed\n"
    assert f"{len(found)} of {len(found)} cases, 0 failed" in shown.err


def calls(count: int) -> list[Call]:
    return [Call(number, "wwwfo"[number % 5], "/job/state/f", False) for number in range(count)]


def test_every_call_meets_every_fault_that_makes_sense_there() -> None:
    """The position of a fault of writes, or of new files, is counted among the calls of that kind."""
    cases = all_cases(calls(100))
    assert len(set(cases)) == len(cases) == 5 * 100 + 3 * 60 + 2 * 20
    assert {case.position for case in cases if case.fault == "torn"} == set(range(60))
    assert {case.position for case in cases if case.fault == "EMFILE"} == set(range(20))


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_parts_of_a_campaign_are_all_of_it_and_each_is_a_fair_sample(count: int) -> None:
    """No part has only the early calls, or only one fault; and so has the beginning of a part."""
    cases = all_cases(calls(800))
    parts = [Part(number, count).of(cases) for number in range(1, count + 1)]
    assert sorted(case for part in parts for case in part) == sorted(cases)
    for part in parts:
        for some in (part, part[: len(part) // 3]):
            assert {case.fault for case in some} == set(FAULTS)
            late = sum(case.position >= 400 for case in some if case.fault in {"EIO", "kill"})
            early = sum(case.position < 400 for case in some if case.fault in {"EIO", "kill"})
            assert 0.5 < late / early < 2


def test_a_case_stays_in_its_part_if_a_crawl_makes_a_few_calls_more() -> None:
    """Its calls differ from run to run; a campaign that goes on must not lose cases by that."""
    some, more = all_cases(calls(800)), all_cases(calls(810))
    assert set(Part(2, 7).of(some)) <= set(Part(2, 7).of(more))


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "a/b", "1/0", "-1/2"])
def test_a_part_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is run."""
    with pytest.raises(SystemExit, match="2"):
        campaign.main(["--part", text])
    assert "argument --part: " in (shown := capsys.readouterr().err)
    if not text.startswith("-"):  # argparse takes it for a flag
        assert f"{text!r} is no part; the second of three is 2/3" in shown


def test_the_help_names_parts_and_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """With their form."""
    with pytest.raises(SystemExit, match="0"):
        campaign.main(["--help"])
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("--part K/N", "--resume", "--table", "--case FAULT@N"))


def result(case: str, kind: str = "w", *problems: str) -> Result:
    return Result(case=case, kind=kind, path="state/f", code=0, problems=problems)


def test_results_are_kept_and_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last result of a case counts. A campaign begins anew only if its file is removed."""
    results = Results(tmp_path / "part-1-of-1.jsonl")
    for one in (result("EIO@1", "w", "bad"), result("EIO@2"), result("EIO@1")):
        results.append(one)
    assert [(one.case, [*one.problems]) for one in results.read()] == [("EIO@1", []), ("EIO@2", [])]
    if shim.COMPILER is not None:
        assert campaign.main(["--folder", str(tmp_path)]) == 2
        assert "continue with --resume, or remove it" in capsys.readouterr().err
    assert campaign.main(["--folder", str(tmp_path), "--table"]) == 0
    assert "2 cases, 0 failed" in capsys.readouterr().out


def test_the_table_has_calls_by_kind_and_fault() -> None:
    """In each cell: how many of how many went well."""
    shown = table(
        [result("EIO@1"), result("EIO@2", "w", "bad"), result("kill@1", "f"), result("torn@9", "")]
    ).splitlines()
    assert shown[0].startswith("| call | ENOSPC |")
    column = [cell.strip() for cell in shown[0].split("|")].index("EIO")
    assert [(row.split("|")[1].strip(), row.split("|")[column].strip()) for row in shown[2:]] == [
        ("write", "1 of 2"),
        ("fsync", "–"),
        ("(not reached)", "–"),
        ("all", "1 of 2"),
    ]
    assert shown[-1].endswith("| 3 of 4 |")


JOB = Path("/job")
WRITE = Call(1, "w", "/job/logs/crawl.log", True)


@each_row(
    ("case", "code", "err", "problem"),
    [
        ("ENOSPC", 3, "anabranch: /job/logs/crawl.log: no space left on device; free some", None),
        ("ENOSPC", 1, "anabranch: /job/logs/crawl.log: no space left on device; free some", "exit code 1"),
        ("EIO", 1, "anabranch: /job/state/seen/x: input/output error; see to", "does not name logs/crawl.log"),
        ("EIO", 1, "", "0 lines say why"),
        ("EIO", 1, "Traceback (most recent call last)\nanabranch: /job/logs/crawl.log: x", "a traceback"),
        ("EIO", 0, "", None),
        ("EIO for ever", 0, "", "exit code 0"),
        ("short", 3, "anabranch: /job/logs/crawl.log: x", "exit code 3"),
        ("kill", -9, "", None),
        ("kill", 0, "", "exit code 0"),
    ],
)
def test_an_end_is_judged_by_its_code_and_its_line(case: str, code: int, err: str, problem: str | None) -> None:
    """The line names what failed first."""
    found = problems_of(Ended(code=code, out="", err=err), Case(case, 1), [WRITE], JOB)
    assert [problem in one for one in found] == [True] if problem else not found


def test_a_fault_that_a_crawl_did_not_reach_changes_nothing() -> None:
    """It must end with 0 then."""
    assert problems_of(Ended(code=0, out="", err=""), Case("kill", 900), [], JOB) == []
    assert problems_of(Ended(code=1, out="", err=""), Case("EIO", 900), [], JOB)


def test_a_file_that_the_crawl_tries_again_may_not_be_the_end() -> None:
    """Then the next one that failed may be named."""
    first = Call(0, "w", "/job/state/frontier.db-wal", True)
    for line in ("/job/state/frontier.db: full", "/job/logs/crawl.log: full"):
        ended = Ended(code=3, out="", err=f"anabranch: {line}")
        assert problems_of(ended, Case("ENOSPC for ever", 0), [first, WRITE], JOB) == []
        assert bool(problems_of(ended, Case("ENOSPC for ever", 0), [WRITE, first], JOB)) is ("frontier" in line)


def test_the_faults_are_named_by_what_the_shim_understands() -> None:
    """An errno, or a word."""
    assert {fault.error for fault in FAULTS.values()} == {
        *(str(number) for number in (errno.ENOSPC, errno.EIO, errno.EMFILE)),
        *("SHORT", "KILL", "TEAR"),
    }
    assert all(set(fault.kinds) <= set(KINDS) for fault in FAULTS.values())
