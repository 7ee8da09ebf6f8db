"""Lines of errors.jsonl."""

from __future__ import annotations

import json

from anabranch.crawler.outcomes.failures import ConnectFailed
from anabranch.crawler.reporting.error_log import Failure, error_line


def test_a_failed_try_says_what_when_and_how_often() -> None:
    """Status in words, the exception's kind and words, the try's number."""
    line = error_line(
        Failure(
            time_s=1795173753.4567,
            url="http://a.test/",
            status=-2,
            attempt=2,
            is_final=False,
            worker=7,
            error=ConnectFailed("refused"),
            hops="L",
            via="http://b.test/",
        )
    )
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "time": "2026-11-20T11:22:33.457Z",
        "url": "http://a.test/",
        "status": -2,
        "words": "-2 connect failed",
        "exception": "ConnectFailed",
        "message": "refused",
        "attempt": 2,
        "final": False,
        "hops": "L",
        "via": "http://b.test/",
        "worker": 7,
    }


def test_an_answer_that_failed_has_no_exception() -> None:
    """503 after its last try."""
    said = json.loads(error_line(Failure(time_s=0.0, url="u", status=503, attempt=5, is_final=True)))
    assert (said["words"], said["exception"], said["message"]) == ("503 Service Unavailable", None, None)


def test_a_broken_processor_leaves_its_traceback() -> None:
    """It is our fault: we must find the place. A site's fault has none."""
    try:
        int("x" * 5000)
    except ValueError as error:
        ours = json.loads(
            error_line(Failure(time_s=0.0, url="u", status=-5, attempt=1, is_final=True, error=error, is_ours=True))
        )
        theirs = json.loads(error_line(Failure(time_s=0.0, url="u", status=-5, attempt=1, is_final=True, error=error)))
    assert "test_a_broken_processor_leaves_its_traceback" in ours["traceback"][0]
    assert len(ours["message"]) <= 1000
    assert "traceback" not in theirs


def test_a_line_is_one_line_of_ascii_whatever_a_site_sent() -> None:
    """Lone surrogates and line ends, too."""
    line = error_line(
        Failure(time_s=0.0, url="u\ud800\n", status=-2, attempt=1, is_final=True, error=ValueError("a\nb"))
    )
    assert line.count(b"\n") == 1
    assert json.loads(line)["message"] == "a\nb"
