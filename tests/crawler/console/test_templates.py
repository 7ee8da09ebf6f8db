"""Saved orders, as files in a folder of the console."""

from __future__ import annotations

import pytest

from anabranch.crawler.console.orders import differing_tables
from anabranch.crawler.console.templates import NoSuchTemplate, Templates
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import OrderError, UsageError


@pytest.fixture
def templates(tmp_path):
    """The templates of a console that has none yet."""
    return Templates(tmp_path / "templates")


def test_a_template_is_an_order_that_the_command_takes(templates) -> None:
    """The text stays as it was given; saving it again replaces it."""
    for pages in (7, 8):
        templates.save("news", f"# weekly\n[limits]\npages = {pages}\n")
    assert templates.names == ["news"]
    assert templates.template("news").toml == "# weekly\n[limits]\npages = 8\n"
    assert load_order(templates.folder / "news.toml", {}).limits.pages == 8
    assert templates.remove("news") == "news"
    assert templates.names == []


def test_a_template_names_no_job_and_no_seeds(templates) -> None:
    """They are of the job that it was saved from."""
    saved = templates.save("a", {"job": {"name": "x", "seeds": ["http://a.test/"], "source_tags": False}})
    assert templates.tables("a") == {"job": {"source_tags": False}}
    assert "http://" not in saved.toml


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "-x", "a" * 65])
def test_a_name_leads_out_of_no_folder(templates, name) -> None:
    """It is refused when it is saved, and unknown when it is asked for."""
    with pytest.raises(UsageError):
        templates.save(name, "")
    with pytest.raises(NoSuchTemplate):
        templates.template(name)


@pytest.mark.parametrize("order", ["[limits]\npages = 'x'", "[", "[write]\nupload = 's3://x'", "[nosuch]\na = 1"])
def test_what_a_new_job_could_not_have_is_no_template(templates, order) -> None:
    """Wrong values, and what names files or code of the machine."""
    with pytest.raises((OrderError, UsageError)):
        templates.save("a", order)
    assert templates.names == []


def test_an_order_is_told_by_what_differs_from_the_defaults() -> None:
    """Without the name and the seeds of its job; entries are whole."""
    order = CrawlOrder.model_validate({
        "job": {"name": "a", "seeds": ["http://a.test/"]},
        "limits": {"pages": 7},
        "override": [{"surt": ["http://(test,a,"], "min_delay": 5}],
    })  # fmt: skip
    found = differing_tables(order)
    assert found["limits"] == {"pages": 7}
    assert found["override"][0]["surt"]
    assert found.keys() == {"limits", "override"}
    assert differing_tables(CrawlOrder()) == {}
