"""The keys of an order, with their origins."""

from __future__ import annotations

from pathlib import Path

from anabranch.crawler.console.pages.order import cut_lines, order_keys, order_layers, setting_text, shown_keys
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.orderfile import change_order
from anabranch.crawler.order.changes import CHANGEABLE
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import KEYS, CrawlOrder, dump_order


def test_each_key_says_where_its_value_comes_from(tmp_path: Path) -> None:
    """A line of the job's order, a change by `anabranch set`, or the default."""
    with JobFolder.open(tmp_path / "job") as job:
        job.write_order(dump_order(CrawlOrder.model_validate({"agent": {"contact": "me@x.test"}})))
    order, _ = change_order(tmp_path / "job", ["limits.pages=7"])
    found = {one.key: one for one in order_keys(order, order_layers(order, tmp_path / "job"))}
    assert (found["limits.pages"].value, found["limits.pages"].origin) == ("7", "anabranch set limits.pages")
    contact = found["agent.contact"]
    line = (tmp_path / "job" / "order.toml").read_text().splitlines().index('contact = "me@x.test"') + 1
    assert (contact.value, contact.origin) == ("me@x.test", f"order.toml:{line}")
    assert found["crawl.workers"].origin == "default"
    assert {key for key, one in found.items() if one.changeable} == {
        f"{section}.{key}" for section, keys in CHANGEABLE.items() for key in keys
    }


def test_keys_that_differ_from_the_default_come_first() -> None:
    """Then all others; both in the order of the sections."""
    order = CrawlOrder.model_validate({"limits": {"pages": 7}, "agent": {"contact": "me@x.test"}})
    keys = [one.key for one in order_keys(order, order_layers(order, None))]
    assert keys[:3] == ["agent.contact", "limits.pages", "job.name"]


def test_the_order_of_a_job_in_a_database_comes_from_there() -> None:
    """It has no file here."""
    order = CrawlOrder.model_validate({"limits": {"pages": 7}})
    found = {one.key: one.origin for one in order_keys(order, order_layers(order, None))}
    assert (found["limits.pages"], found["crawl.workers"]) == ("the job's database", "default")


def test_a_value_is_written_as_a_setting_has_it(tmp_path: Path) -> None:
    """So what is shown can be given back unchanged, for each key that can be changed."""
    settings = [f"{one.key}={one.value}" for one in order_keys(CrawlOrder(), []) if one.changeable and one.value != ""]
    assert load_order(None, {}, settings).limits == CrawlOrder().limits
    assert (setting_text(None), setting_text(True), setting_text(["a", "é"])) == ("", "true", '["a", "é"]')


def test_a_long_order_is_cut() -> None:
    """By lines."""
    assert cut_lines("a\nb\x1b\nc", most=2) == "a\nb\\x1b\n…"


def test_only_what_differs_is_shown_by_section() -> None:
    """All keys by a switch; a text finds any key, also one that has its default."""
    order = CrawlOrder.model_validate({"limits": {"pages": 7}, "agent": {"contact": "me@x.test"}})
    keys = order_keys(order, order_layers(order, None))

    def shown(text: str = "", *, has_all: bool = False, only_changeable: bool = False) -> list[str]:
        return [one.key for one in shown_keys(keys, text, has_all=has_all, only_changeable=only_changeable)]

    assert shown() == ["agent.contact", "limits.pages"]
    assert shown("bytes_per_host") == ["limits.bytes_per_host"]
    assert shown(only_changeable=True) == ["limits.pages"]
    everything = shown(has_all=True)
    assert len(everything) == len(keys)
    sections = [key.partition(".")[0] for key in everything]
    assert sections == sorted(sections, key=list(KEYS).index)
    assert next(key for key in everything if key.startswith("limits.")) == "limits.pages"
