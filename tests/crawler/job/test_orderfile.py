"""The order that a job goes on by, and the copy of it in the job's state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.crawler.job import orderfile
from anabranch.crawler.job.orderfile import last_order_file, order_edits, order_file, write_order
from anabranch.crawler.outcomes.errors import OrderDamaged, StorageError
from anabranch.dedup.files.durable import replace_file

TEXT = '[crawl]\nworkers = 20\n\n[scope]\nscope = "host"\nexclude = ["\\\\.jpg$"]\n'


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "job.db").write_text("something\n")
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
        (b"\xef\xbb\xbf" + TEXT[: TEXT.index("exclude")].encode(), "is cut"),
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
    for file in (job / "order.toml", job / "state" / "order.toml"):
        file.unlink()
    with pytest.raises(
        OrderDamaged, match=r"is missing; restore it from a copy, or name the order to go on by: -c FILE"
    ):
        order_file(job)


def test_an_edited_order_is_accepted_and_each_difference_is_told(job: Path) -> None:
    """A long value is cut to fit into a line, and control characters are escaped."""
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


@pytest.mark.parametrize("removed", ["exclude = ", "\n[scope]", "[crawl]"])
def test_an_edit_may_remove_the_end_of_the_order(job: Path, removed: str) -> None:
    """An order that still has its last line was edited, not cut off."""
    order = job / "order.toml"
    text = order.read_text()
    order.write_text(text[: text.index(removed)] + text[text.index("# end of the order") :])
    assert order_file(job) == order
    assert f"{order}: edited: [scope] exclude: ['\\\\.jpg$'] is now not set" in order_edits(job)


def test_a_last_line_that_is_missing_alone_is_no_damage(job: Path) -> None:
    """All that the order says is there. So are orders and copies of older versions, which have no such line."""
    (job / "order.toml").write_text(TEXT)
    assert order_file(job) == job / "order.toml"
    assert order_edits(job) == []


@pytest.mark.parametrize("is_new", [True, False])
def test_a_kill_between_the_order_and_its_copy_damages_nothing(
    job: Path, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    """The job goes on by the new order, and the next run is told what is different since the last."""
    if is_new:
        for file in (job / "order.toml", job / "state" / "order.toml", job / "state" / "job.db"):
            file.unlink()

    def killed(path: Path, data: bytes) -> None:
        replace_file(path, data)
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(orderfile, "replace_file", killed)
        with pytest.raises(StorageError):
            write_order(job, TEXT.replace("20", "30"))
    assert order_file(job) == job / "order.toml"
    assert order_edits(job) == ([] if is_new else [f"{job / 'order.toml'}: edited: [crawl] workers: 20 is now 30"])
    assert last_order_file(job) == (job / "order.toml" if is_new else job / "state" / "order.toml")


def test_the_copy_of_a_job_that_has_not_begun_is_no_order(job: Path) -> None:
    """It was killed while a failed start was removed."""
    (job / "order.toml").unlink()
    (job / "state" / "job.db").unlink()
    assert order_file(job) is None


def test_comments_and_blank_lines_are_no_edit(job: Path) -> None:
    """Only the values that the order sets are compared."""
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
