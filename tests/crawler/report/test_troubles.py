"""Why tries failed: the lines of errors.jsonl, and the last trouble of each host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.crawler.outcomes.failures import ConnectFailed, KeptConnectionClosed, NameNotFound
from anabranch.crawler.processors.admission import OutOfScope
from anabranch.crawler.report import logtail, troubles
from anabranch.crawler.report.logtail import ERRORS, Trouble, last_logged
from anabranch.crawler.report.troubles import Failure, Troubles, error_line, reason_of
from anabranch.crawler.visit import ChainDecision, Visit
from anabranch.frontier.records import GateKey, OutcomeKind
from tests.crawler.builder import response, visit
from tests.rows import each_row


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


DONE, FAILED, RETRY, DEFERRED = OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.RETRY, OutcomeKind.DEFERRED
A, B = "http://a.test/", "http://b.test/"


def at(host: str, **left: object) -> Visit:
    """A visit of a host's first page."""
    one = visit(url=f"http://{host}.test/", **left)  # type: ignore[arg-type]
    one.lease = one.lease._replace(gate=GateKey(f"{host}.test"))
    return one


def refused(host: str) -> Visit:
    return at(host, failure=ConnectFailed("connection refused"))


def test_a_try_that_failed_is_told_with_when_it_is_made_again() -> None:
    """Seen from a later moment both times have changed."""
    recorded = Troubles()
    recorded.record(refused("a"), RETRY, 100.0, 160.0)
    last = recorded.last(120.0)
    assert last == Trouble(A, "connection refused", ago_s=20.0, is_final=False, again_in_s=40.0)
    assert last.describe() == f"connection refused, tried again in 40s ({A})"
    assert recorded.of(GateKey("a.test"), 120.0) == last
    assert recorded.of(GateKey("b.test"), 120.0) is None


@pytest.mark.parametrize(
    ("kind", "again_s", "words"),
    [(FAILED, 160.0, "given up"), (RETRY, float("inf"), "to be tried again"), (RETRY, 90.0, "tried again in 0ms")],
)
def test_what_comes_of_the_url_is_told(kind: OutcomeKind, again_s: float, words: str) -> None:
    """A gate that no time opens has no time to tell."""
    recorded = Troubles()
    recorded.record(refused("a"), kind, 100.0, again_s)
    last = recorded.last(120.0)
    assert last is not None
    assert last.describe() == f"connection refused, {words} ({A})"


@each_row(
    ("left", "reason"),
    [
        ({"failure": NameNotFound("no such host")}, "no such host"),
        ({"failure": NameNotFound("")}, "-1 DNS lookup failed"),
        ({"failure": KeptConnectionClosed("closed")}, ""),
        ({"answer": response(429)}, "answered with 429 Too Many Requests"),
        (
            {"answer": response(503), "decision": ChainDecision.NO_RULES},
            "its robots.txt was answered with 503 Service Unavailable",
        ),
        ({"answer": response(500)}, ""),
        ({"answer": response(503), "decision": ChainDecision.DEFERRED}, ""),
        ({"broken": KeyError("odd")}, "KeyError: 'odd'"),
        ({"decision": ChainDecision.EXCLUDED}, ""),
    ],
)
def test_every_failure_has_its_reason(left: dict[str, object], reason: str) -> None:
    """An answer is none, unless the host asks for a rest; nor is a connection that the host was free to close."""
    assert reason_of(at("a", **left), RETRY) == reason


@pytest.mark.parametrize("reason", ["out of scope", "blocked by the operator", "pages_per_host 5 is reached"])
def test_a_url_that_the_order_excludes_is_no_trouble(reason: str) -> None:
    """It ended as it should."""
    recorded = Troubles()
    recorded.record(at("a", failure=OutOfScope(reason)), OutcomeKind.DISREGARDED, 100.0, None)
    assert recorded.last(120.0) is None
    assert recorded.failing == 0


def test_a_host_that_answers_has_no_trouble_any_more() -> None:
    """Others keep theirs; what was not fetched changes nothing."""
    recorded = Troubles()
    recorded.record(refused("a"), RETRY, 1.0, 2.0)
    recorded.record(refused("b"), RETRY, 3.0, 4.0)
    recorded.record(at("b", decision=ChainDecision.EXCLUDED), OutcomeKind.DISREGARDED, 5.0, None)
    assert (last := recorded.last(6.0)) is not None
    assert last.url == B
    recorded.record(at("b", answer=response(404)), DONE, 7.0, None)
    assert (last := recorded.last(8.0)) is not None
    assert last.url == A


def test_what_a_site_says_is_shown_as_printable_text_of_some_lines() -> None:
    """No terminal obeys it: controls of C0 and C1, and marks that turn the direction of a text."""
    recorded = Troubles()
    recorded.record(at("a", failure=ConnectFailed("\x1b]0;x\x07 \u009b2J \u202e" + "x" * 9999)), RETRY, 1.0, None)
    last = recorded.last(1.0)
    assert last is not None
    assert last.reason.startswith("\\x1b]0;x\\x07 \\x9b2J \\u202ex")
    assert last.reason.isprintable()
    assert len(last.reason) == 300


def test_of_very_many_hosts_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crawl of the web must not keep a row for each."""
    monkeypatch.setattr(troubles, "KEPT", 2)
    recorded = Troubles()
    for host in "abac":
        recorded.record(refused(host), RETRY, 1.0, None)
    assert [recorded.of(GateKey(f"{host}.test"), 1.0) is not None for host in "abc"] == [True, False, True]


def test_urls_that_fail_are_counted_until_a_page_is_answered() -> None:
    """One that is given up or whose host has recovered is not failing; a robots.txt is no page."""
    recorded = Troubles()
    for one, kind in (
        (refused("a"), RETRY),
        (refused("a"), RETRY),
        (refused("b"), RETRY),
        (refused("c"), FAILED),
        (at("d", answer=response(503), decision=ChainDecision.NO_RULES), DEFERRED),
    ):
        recorded.record(one, kind, 1.0, None)
    assert recorded.failing == 3
    recorded.record(at("d", answer=response(200), decision=ChainDecision.DEFERRED), DEFERRED, 2.0, None)
    assert recorded.failing == 2
    recorded.record(at("e", answer=response(200)), DONE, 3.0, None)
    assert recorded.failing == 0
    recorded.record(refused("f"), RETRY, 4.0, None)
    assert recorded.failing == 0


def test_the_trouble_of_an_earlier_run_counts_until_this_one_has_its_own_or_an_answer() -> None:
    """Its gate may be closed for an hour yet."""
    earlier = Trouble(A, "timed out", ago_s=50.0, is_final=False, again_in_s=None)
    recorded = Troubles()
    recorded.restore(earlier, 100.0)
    assert recorded.last(110.0) == earlier._replace(ago_s=60.0)
    recorded.record(refused("b"), RETRY, 120.0, None)
    assert (last := recorded.last(120.0)) is not None
    assert last.url == B
    recorded = Troubles()
    recorded.restore(earlier, 100.0)
    recorded.record(at("b", answer=response(200)), DONE, 120.0, None)
    assert recorded.last(120.0) is None


def failed(url: str, time_s: float, *, is_final: bool = False) -> bytes:
    error = ConnectFailed("connection \u009b refused")
    return error_line(Failure(time_s=time_s, url=url, status=-2, attempt=1, is_final=is_final, error=error))


def test_of_a_job_that_nobody_crawls_the_log_tells(tmp_path: Path) -> None:
    """The last line of all shares, or of one URL; a cut tail and lines that are none are passed over."""
    assert last_logged(tmp_path, 0.0) is None
    own, share = tmp_path / ERRORS, tmp_path / "workers" / "1" / ERRORS
    for file, content in (
        (own, failed(A, 10.0) + failed(B, 20.0) + b'{"url":3}\n[]\nx\n' + failed(A, 50.0)[:-9]),
        (share, failed("http://c.test/", 30.0, is_final=True)),
    ):
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    assert last_logged(tmp_path, 45.0) == Trouble(
        "http://c.test/", "connection \\x9b refused", ago_s=15.0, is_final=True, again_in_s=None
    )
    assert (found := last_logged(tmp_path, 45.0, A)) is not None
    assert found.ago_s == 35.0
    assert last_logged(tmp_path, 45.0, "http://d.test/") is None


def test_only_the_end_of_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have millions of lines."""
    file = tmp_path / ERRORS
    file.parent.mkdir()
    file.write_bytes(failed(A, 1.0) + failed(B, 2.0))
    monkeypatch.setattr(logtail, "_TAIL_BYTES", len(failed(B, 2.0)) + 9)
    assert last_logged(tmp_path, 3.0, A) is None
    assert json.dumps(last_logged(tmp_path, 3.0)) == json.dumps([B, "connection \\x9b refused", 1.0, False, None])
