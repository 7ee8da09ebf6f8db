"""Scrapy beside the product."""

from __future__ import annotations

import pytest

pytest.importorskip("scrapy")

from scrapy.settings import default_settings

from scripts.benchmarks.crawl.programs.scrapy_links import TUNED

_CHAINS = ("EXTENSIONS", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES")


def test_what_is_switched_off_is_there() -> None:
    """Scrapy says nothing of a setting that it does not know, or a part of a chain: it would be left on."""
    known = {name for name in dir(default_settings) if name.isupper()}
    assert set(TUNED) <= known
    for chain in _CHAINS:
        assert set(TUNED[chain]) <= set(getattr(default_settings, f"{chain}_BASE"))
