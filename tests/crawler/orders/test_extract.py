"""The section [extract]."""

import pytest

from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.orders.sources import load_order
from anabranch.crawler.outcomes.errors import OrderError


def ordered(tmp_path, text, **flags):
    file = tmp_path / "crawl.toml"
    file.write_text(f"[extract]\n{text}")
    return load_order(file, flags).extract


def test_the_defaults_are_the_readers_own(tmp_path) -> None:
    """One truth: what the order does not say is as in `ExtractOptions`."""
    assert ordered(tmp_path, "").options(robot="anabranch") == ExtractOptions()


def test_every_key_reaches_the_readers(tmp_path) -> None:
    """Quantities with their units, `nofollow_links` from the robots' section."""
    text = "max_outlinks=5\ncss=false\nsitemaps=true\nforms=true\nspeculative=true\ndata_attributes=false\n"
    section = ordered(tmp_path, text + 'max_content="1KiB"\ntimeout="2s"\n')
    assert section.options(robot="x", nofollow_links=True) == ExtractOptions(
        max_outlinks=5,
        css=False,
        sitemaps=True,
        forms=True,
        speculative=True,
        data_attributes=False,
        max_content_bytes=1024,
        timeout_s=2.0,
        robot="x",
        nofollow_links=True,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max_outlinks=0", "max_outlinks"),
        ('max_content="0"', "max_content"),
        ('timeout="0s"', "timeout"),
        ("css=3", "css"),
        ("javascript=true", "javascript"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path, text, named) -> None:
    """One line, with the key."""
    with pytest.raises(OrderError, match=named):
        ordered(tmp_path, text)


def test_timeout_as_a_flag_is_the_fetchs(tmp_path) -> None:
    """A key that two sections have has one flag."""
    assert ordered(tmp_path, "", timeout="3s").timeout_s == 10.0
