"""The changes that a job keeps: they hold until a command names another value."""

from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.orderfile import begun_order, change_order, lasting_changes, settle_changes
from anabranch.crawler.order.changes import Change, held_changes
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import OrderDamaged, UsageError


def order_of(pages: int) -> CrawlOrder:
    return CrawlOrder.model_validate({"limits": {"pages": pages}})


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job that was begun with a limit of 100 pages."""
    with JobFolder.open(tmp_path / "job") as folder:
        folder.write_order(dump_order(order_of(100)))
    return tmp_path / "job"


def test_a_change_is_in_the_order_of_the_job(job) -> None:
    """The next run goes on by it."""
    order, changes = change_order(job, ["limits.pages=500"])
    assert changes == [Change("limits.pages", 100, 500)]
    assert begun_order(job) == order


def test_a_change_holds_against_a_command_that_names_the_value_from_before(job) -> None:
    """Also after several changes; one that was taken back holds no more."""
    change_order(job, ["limits.pages=500"])
    change_order(job, ["limits.pages=700"])
    assert held_changes(lasting_changes(job), order_of(100)) == [Change("limits.pages", 100, 700)]
    assert held_changes(lasting_changes(job), order_of(700)) == []
    assert held_changes(lasting_changes(job), order_of(200)) == []
    change_order(job, ["limits.pages=100"])
    assert held_changes(lasting_changes(job), order_of(100)) == []


def test_a_run_with_another_value_ends_the_change(job) -> None:
    """From then on the value from before is a new one."""
    change_order(job, ["limits.pages=500"])
    settle_changes(job / "state", order_of(500))
    assert held_changes(lasting_changes(job), order_of(100))
    settle_changes(job / "state", order_of(200))
    assert held_changes(lasting_changes(job), order_of(100)) == []


def test_a_job_that_has_not_begun_has_nothing_to_change(tmp_path) -> None:
    """One line says so."""
    with JobFolder.open(tmp_path / "new"), pytest.raises(UsageError, match="has not begun"):
        change_order(tmp_path / "new", ["limits.pages=5"])


@pytest.mark.parametrize("text", ["[[", "5", "[5]", "[[1, 2]]"])
def test_a_damaged_file_of_changes_is_named(job, text) -> None:
    """With what to do."""
    change_order(job, ["limits.pages=500"])
    (job / "state" / "changes.json").write_text(text)
    with pytest.raises(OrderDamaged, match=r"changes\.json: cannot be read; remove it"):
        held_changes(lasting_changes(job), order_of(100))


def test_a_key_that_another_version_knows_is_left_out(job) -> None:
    """It holds no more."""
    (job / "state" / "changes.json").write_text('[["limits.moons", 1, 2]]')
    assert held_changes(lasting_changes(job), order_of(100)) == []
