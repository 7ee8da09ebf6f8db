"""The order that a job goes on by, and the copy of it in the job's state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crawler.jobs.orderfile import order_edits, order_file, write_order
from crawler.outcomes.errors import OrderDamaged

TEXT = '[crawl]\nworkers = 20\n\n[scope]\nscope = "host"\nexclude = ["\\\\.jpg$"]\n'


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    write_order(tmp_path, TEXT)
    return tmp_path


def test_an_order_that_nobody_touched_is_whole(job: Path) -> None:
    """And nothing is said of it."""
    assert order_file(job) == job / "order.toml"
    assert order_edits(job) == []


def test_a_job_that_has_not_begun_has_no_order(tmp_path: Path) -> None:
    """It was killed before it had one, and has no seeds either."""
    assert order_file(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is missing"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\0" * len(TEXT), "not TOML"),
        (TEXT.encode().replace(b"scope = ", b"scope \xff "), r"not UTF-8 \(at line 5\)"),
        (TEXT[:22].encode(), "is cut: what was written from line 4 on is missing"),
        (TEXT[: TEXT.index("0\n")].encode(), "is cut: what was written from line 2 on is missing"),
        (TEXT[: TEXT.index("exclude")].encode(), "is cut"),
        (b"a = " + b"[" * 5000, "not TOML"),
    ],
)
def test_an_order_that_is_not_whole_is_refused_with_the_copy_as_the_remedy(
    job: Path, content: bytes | None, words: str
) -> None:
    """A job must not go on by what is left of its order."""
    order = job / "order.toml"
    order.unlink()
    if content is not None:
        order.write_bytes(content)
    with pytest.raises(OrderDamaged, match=words) as refused:
        order_file(job)
    remedy = re.search(r"\(cp (\S+) (\S+)\)", str(refused.value))
    assert remedy is not None
    Path(remedy[2]).write_bytes(Path(remedy[1]).read_bytes())
    assert order_file(job) == order
    assert order_edits(job) == []


def test_without_a_copy_a_missing_order_is_no_new_job(job: Path) -> None:
    """Its seeds would be crawled by the defaults."""
    (job / "state" / "seeds.jsonl").write_text("something\n")
    for file in (job / "order.toml", job / "state" / "order.toml"):
        file.unlink()
    with pytest.raises(
        OrderDamaged, match=r"is missing; restore it from a copy, or name the order to go on by: -c FILE"
    ):
        order_file(job)


def test_an_edited_order_is_accepted_and_each_difference_is_told(job: Path) -> None:
    """Of a value as much as fits into a line; what a terminal would obey is escaped."""
    edited = (
        TEXT.replace('"host"', '"any\\u001b"').replace("workers = 20\n", "")
        + f'exclude2 = "{"x" * 99}"\n[[override]]\na = 1\n'
    )
    (job / "order.toml").write_text(edited)
    assert order_file(job) == job / "order.toml"
    told = [line.removeprefix(f"{job / 'order.toml'}: edited: ") for line in order_edits(job)]
    assert told == [
        "[crawl] workers: 20 is now not set",
        "[scope] scope: 'host' is now 'any\\x1b'",
        f"[scope] exclude2: not set is now '{'x' * 59}…",
        "[[override]]: not set is now [{'a': 1}]",
    ]


def test_comments_and_blank_lines_are_no_edit(job: Path) -> None:
    """What counts is what the order says."""
    (job / "order.toml").write_text("# mine\n" + TEXT + "\n\n")
    assert order_file(job) == job / "order.toml"
    assert order_edits(job) == []


@pytest.mark.parametrize("damage", ["gone", "flipped", "cut", "empty"])
def test_a_damaged_copy_harms_nobody(job: Path, damage: str) -> None:
    """The order itself is whole; the next run writes both."""
    copy = job / "state" / "order.toml"
    said = copy.read_bytes()
    copy.unlink()
    if damage != "gone":
        copy.write_bytes({"flipped": said.replace(b"20", b"21"), "cut": said[:-3], "empty": b""}[damage])
    assert order_file(job) == job / "order.toml"
    assert order_edits(job) == []
