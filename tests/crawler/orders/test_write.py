"""The section [write]."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from anabranch.crawler.orders.write import WriteSection


def test_the_defaults_write_pages_and_no_warc() -> None:
    """An archive is asked for."""
    section = WriteSection()
    assert (section.warc, section.pages, section.links, section.revisit) == (False, True, False, True)
    assert section.warc_size_bytes == 1_000_000_000


def test_sizes_are_read_as_people_write_them() -> None:
    """As everywhere in the order."""
    assert WriteSection.model_validate({"warc_size": "10MiB"}).warc_size_bytes == 10 << 20


@pytest.mark.parametrize(
    "bad", [{"warc_prefix": "a/b"}, {"warc_prefix": ".a"}, {"warc_prefix": ""}, {"warc_size": "1KB"}]
)
def test_what_makes_no_file_is_refused(bad: dict[str, object]) -> None:
    """A prefix is part of a file's name; a file holds more than its first record."""
    with pytest.raises(ValidationError):
        WriteSection.model_validate(bad)
