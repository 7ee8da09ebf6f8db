"""The fields of a request, and what of it may be shown."""

from __future__ import annotations

import pytest

from anabranch.crawler.fetching.requests import Fields, without_credentials

USUAL = {"User-Agent": "a", "Accept": "b"}


def test_a_requests_own_fields_win_over_the_usual_ones() -> None:
    """By name in any case: no field is sent twice."""
    fields = Fields(USUAL)
    assert fields.with_own({}) == b"User-Agent: a\r\nAccept: b\r\n"
    assert fields.with_own({"user-agent": "c", "X": "y"}) == b"user-agent: c\r\nAccept: b\r\nX: y\r\n"
    assert fields.with_own({}) == b"User-Agent: a\r\nAccept: b\r\n"


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nX: y", "a\0", "\x7f"])
def test_a_value_that_would_end_its_field_is_refused(value: str) -> None:
    """Nothing is put into our request."""
    with pytest.raises(ValueError, match="cannot be sent"):
        Fields(USUAL).with_own({"X": value})
    with pytest.raises(ValueError, match="cannot be sent"):
        Fields({"X": value})


def test_what_is_shown_of_a_request_opens_no_doors() -> None:
    """Every field of credentials is left out, and nothing else."""
    start, rest = b"GET /authorization:x HTTP/1.1\r\nHost: a\r\n", b"X-Authorization: y\r\n\r\n"
    secrets = b"authorization: Basic x\r\nProxy-Authorization: Basic y\r\n"
    assert without_credentials(start + secrets + rest) == start + rest
