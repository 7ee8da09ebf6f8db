"""Statuses: Heritrix's numbers, their words and their classes."""

from __future__ import annotations

from anabranch.crawler.outcomes.status import MEANINGS, FetchStatus, StatusClass, class_of, describe
from tests.rows import each_row


def test_the_numbers_are_those_of_heritrix() -> None:
    """Operators know these numbers from crawl.log, so they never change."""
    assert {status.name: int(status) for status in FetchStatus} == {
        "UNATTEMPTED": 0,
        "DNS_FAILED": -1,
        "CONNECT_FAILED": -2,
        "CONNECTION_LOST": -3,
        "TIMED_OUT": -4,
        "PROCESSOR_FAILED": -5,
        "DNS_PREREQUISITE_FAILED": -6,
        "UNFETCHABLE": -7,
        "BAD_HTTP": -9,
        "ROBOTS_FAILED": -61,
        "PREREQUISITE_FAILED": -62,
        "DEEMED_NOT_FOUND": -404,
        "OUT_OF_SCOPE": -5000,
        "BLOCKED": -5001,
        "BLOCKED_BY_PROCESSOR": -5002,
        "OVER_QUOTA": -5003,
        "OVER_TIME": -5004,
        "SKIPPED": -5005,
        "DELETED": -6000,
        "WORKER_KILLED": -7000,
        "ROBOTS_EXCLUDED": -9998,
    }


def test_every_code_has_a_meaning() -> None:
    """The table of words and classes is complete and holds nothing else."""
    assert set(MEANINGS) == set(FetchStatus)


@each_row(
    ("status", "text"),
    [
        (200, "200 OK"),
        (404, "404 Not Found"),
        (FetchStatus.CONNECT_FAILED, "-2 connect failed"),
        (-9998, "-9998 excluded by robots.txt"),
        (599, "599 unknown HTTP status"),
        (-12345, "-12345 unknown status"),
        (7, "7 unknown status"),
    ],
)
def test_describe_gives_number_and_words(status: int, text: str) -> None:
    """A status is described by its number and its words, known or not."""
    assert describe(status) == text


@each_row(
    ("status", "expected"),
    [
        (100, StatusClass.SUCCESS),
        (500, StatusClass.SUCCESS),
        (999, StatusClass.SUCCESS),
        (99, StatusClass.FAILED),
        (0, StatusClass.FAILED),
        (-3, StatusClass.FAILED),
        (-12345, StatusClass.FAILED),
        (-5001, StatusClass.DISREGARDED),
        (-9998, StatusClass.DISREGARDED),
        (-5000, StatusClass.DISREGARDED),
        (-5003, StatusClass.DISREGARDED),
        (-6000, StatusClass.DISREGARDED),
        (-6, StatusClass.FAILED),
        (-62, StatusClass.FAILED),
        (-404, StatusClass.FAILED),
        (-7000, StatusClass.FAILED),
    ],
)
def test_an_http_answer_is_a_success_whatever_its_number(status: int, expected: StatusClass) -> None:
    """The class says whether the server answered, not whether it answered kindly."""
    assert class_of(status) is expected
