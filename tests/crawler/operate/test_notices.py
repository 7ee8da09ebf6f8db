"""Notices of the end of a run: signed, and what keeps one from being delivered."""

import base64
import json
import re
import sys
import time

import pytest
from standardwebhooks import Webhook

from anabranch.crawler.operate import notices
from anabranch.crawler.operate.notices import (
    COMMAND,
    WEBHOOK,
    Notice,
    NoticeTargets,
    Undelivered,
    deliver,
    deliver_all,
    notice_of,
    signature,
    targets_of,
)
from anabranch.crawler.outcomes.errors import UsageError
from tests.rows import each_row
from tests.site.webhook import ENDLESS, HANGS, receiving

SECRET = "correct horse battery staple"
NOTICE = notice_of("/jobs/news", 1e9, {"job": "news", "line": "finished – ok"}, 1e9 + 60)


def targets(url: str, **more) -> NoticeTargets:
    return NoticeTargets(webhook=url, secret=SECRET.encode(), **{"allow_private": True, **more})


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """An example of the specification."""
    notice = Notice("msg_loFOjxBNrRLzqYUf", "", 0.0, '{"event_type":"ping","data":{"success":true}}')
    secret = targets_of(
        None, "https://x.test/", "S", allow_private=False, environment={"S": "whsec_plJ3nmyCDGBKInavdOK15jsl"}
    ).secret
    assert signature(secret, notice, 1731705121) == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_a_receiver_verifies_what_is_sent() -> None:
    """With the library that others use; another secret does not fit."""
    with receiving() as receiver:
        deliver(NOTICE, WEBHOOK, targets(receiver.address()), time.time())
        got = receiver.next()
    assert Webhook(base64.b64encode(SECRET.encode()).decode()).verify(got.body, dict(got.headers)) == {
        "type": "job.ended",
        "timestamp": "2001-09-09T01:47:40.000Z",
        "data": {"job": "news", "line": "finished – ok"},
    }
    assert (got.headers["content-type"], got.headers["webhook-id"]) == ("application/json", NOTICE.id)
    with pytest.raises(Exception, match="signature"):
        Webhook(base64.b64encode(b"another one").decode()).verify(got.body, dict(got.headers))


def test_the_id_is_that_of_the_run() -> None:
    """A receiver that got a notice twice can tell."""
    again = notice_of("/jobs/news", 1e9, {"job": "news"}, 2e9)
    assert again.id == NOTICE.id
    assert notice_of("/jobs/news", 1e9 + 1, {"job": "news"}, 2e9).id != NOTICE.id
    assert notice_of("/jobs/olds", 1e9, {"job": "news"}, 2e9).id != NOTICE.id


@each_row(
    ("answer", "words"),
    [
        (500, "answered 500, no 2xx"),
        (404, "answered 404, no 2xx"),
        (302, "answered 302, a redirect, which is not followed"),
    ],
)
def test_another_answer_than_2xx_is_none(answer, words) -> None:
    """A redirect is not followed: nothing else is asked."""
    with receiving(answer) as receiver:
        with pytest.raises(Undelivered, match=re.escape(f"127.0.0.1: {words}")):
            deliver(NOTICE, WEBHOOK, targets(receiver.address()), 0.0)
        assert receiver.next().path == "/hook"
        assert receiver.received.empty()


def test_a_webhook_that_hangs_has_a_time_out(monkeypatch) -> None:
    """It limits the whole exchange."""
    monkeypatch.setattr(notices, "WEBHOOK_S", 0.2)
    with receiving(HANGS) as receiver, pytest.raises(Undelivered, match=r"127\.0\.0\.1: "):
        deliver(NOTICE, WEBHOOK, targets(receiver.address()), 0.0)


def test_an_answer_is_read_up_to_a_bound() -> None:
    """Its status counts."""
    with receiving(ENDLESS) as receiver:
        deliver(NOTICE, WEBHOOK, targets(receiver.address()), 0.0)


def test_a_private_address_is_refused_when_its_name_is_resolved() -> None:
    """Unless the operator allows it; localhost is such a name."""
    with receiving() as receiver:
        url = receiver.address().replace("127.0.0.1", "localhost")
        with pytest.raises(Undelivered, match="is not a public address"):
            deliver(NOTICE, WEBHOOK, targets(url, allow_private=False), 0.0)
        assert receiver.received.empty()


def test_a_failure_is_tried_again_at_growing_distances(monkeypatch) -> None:
    """Four tries; a target that takes none is one line."""
    monkeypatch.setattr(notices, "WAITS_S", (0.0, 0.0, 0.0))
    with receiving(500, 500) as receiver:
        assert list(deliver_all(NOTICE, targets(receiver.address()), time.time)) == []
        ids = {receiver.next().headers["webhook-id"] for _ in range(3)}
        assert ids == {NOTICE.id}
    with receiving(*[500] * 9) as receiver:
        (line,) = deliver_all(NOTICE, targets(receiver.address()), time.time)
        assert line.endswith("answered 500, no 2xx")
        assert [receiver.next().path for _ in range(4)] == ["/hook"] * 4
        assert receiver.received.empty()


def test_a_command_gets_the_json_on_its_standard_input(tmp_path) -> None:
    """No shell reads its arguments, and its output goes nowhere."""
    file = tmp_path / "a b;$(x).json"
    program = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read()); print('x')"
    deliver(NOTICE, COMMAND, NoticeTargets((sys.executable, "-c", program, str(file))), 0.0)
    assert json.loads(file.read_text())["data"]["job"] == "news"


@each_row(
    ("command", "words"),
    [
        (("/nowhere/x",), "/nowhere/x: no such file or directory"),
        (("false",), "false: ended with exit code 1"),
        (("sleep", "1000"), "sleep: ran for more than 0 s and was killed"),
    ],
)
def test_a_command_that_fails_or_hangs_is_said(monkeypatch, command, words) -> None:
    """It ends with its children."""
    monkeypatch.setattr(notices, "COMMAND_S", 0.2)
    with pytest.raises(Undelivered, match=re.escape(words)):
        deliver(NOTICE, COMMAND, NoticeTargets(command), 0.0)


def test_a_target_that_is_no_longer_configured_is_said() -> None:
    """Undelivered notices wait."""
    with pytest.raises(Undelivered, match=r"no webhook is configured now \(--on-end-webhook\)"):
        deliver(NOTICE, WEBHOOK, NoticeTargets(("true",)), 0.0)


@each_row(
    ("webhook", "secret", "words"),
    [
        ("example.org/hook", SECRET, "must be an http or https URL without a user"),
        ("https://user:pw@example.org/", SECRET, "must be an http or https URL without a user"),
        ("file:///etc/passwd", SECRET, "must be an http or https URL without a user"),
        ("http://169.254.169.254/latest", SECRET, "169.254.169.254 is not a public address"),
        ("http://[::1]/", SECRET, "::1 is not a public address"),
        ("https://example.org/", "", "the variable HOOK has no secret to sign with"),
        ("https://example.org/", "abc123", "the secret in HOOK is shorter than 16 bytes"),
        ("https://example.org/", "whsec_!", "the variable HOOK is not base64 behind whsec_"),
    ],
)
def test_a_webhook_that_cannot_be_used_is_refused_at_once(webhook, secret, words) -> None:
    """Before anything is crawled; the secret is not shown."""
    with pytest.raises(UsageError) as refused:
        targets_of(None, webhook, "HOOK", allow_private=False, environment={"HOOK": secret})
    assert words in str(refused.value)
    assert not secret or secret not in str(refused.value)


def test_a_command_that_no_shell_could_read_is_refused() -> None:
    """The line quotes it."""
    with pytest.raises(UsageError, match="--on-end-command"):
        targets_of("x 'y", None, "S", allow_private=False, environment={})
    assert targets_of("x 'y z'", None, "S", allow_private=False, environment={}) == NoticeTargets(("x", "y z"))
