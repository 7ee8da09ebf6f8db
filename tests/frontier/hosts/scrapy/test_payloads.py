"""Queued requests of Scrapy are JSON: reading them runs no code, whoever wrote them."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections import namedtuple
from pathlib import Path

import pytest

from tests.rows import each_row

pytest.importorskip("scrapy")

from scrapy import FormRequest, Request

from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.hosts.scrapy.payloads import UNPICKLE, pack, settle_pickles, unpack
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind

URL = "http://a.test/"


class Marks:
    """Leaves a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@each_row(
    "value",
    [
        {"a": [1, 2.5, None, True, "\ud800 \x00"]},
        (1, ("a", b"\x00\xff")),
        {1: "one", (2, 3): b"two", b"x": []},
        {"": "the key of our own objects"},
        {"": ["bytes", "aGk="]},
        b"",
        10**50,
        {},
    ],
)
def test_what_is_read_is_what_was_written(value) -> None:
    """With the same types, also of what JSON has no word for."""
    fields = Request(URL, meta={"value": value}, body=b"\xff", headers={"A": ["b", "c"]}).to_dict()
    back = unpack(pack(fields), may_unpickle=False)
    assert back == fields
    assert repr(back["meta"]) == repr(fields["meta"])


Point = namedtuple("Point", "x y")


@each_row("value", [{1}, dt.date(2027, 1, 1), Point(1, 2), object(), type("Text", (str,), {})("a")])
def test_what_json_cannot_hold_is_refused(value) -> None:
    """Also in the depth; such a request stays in the process."""
    with pytest.raises(TypeError, match="JSON cannot hold a"):
        pack(Request(URL, meta={"deep": [{"er": value}]}).to_dict())


def test_a_value_that_holds_itself_is_refused() -> None:
    """A value that contains itself is refused like one that is nested too deeply."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises((ValueError, RecursionError)):
        pack({"meta": {"endless": endless}})


def test_a_class_is_one_that_the_project_has_imported() -> None:
    """Else Scrapy would import what the folder names."""
    fields = FormRequest(URL, formdata={"a": "b"}).to_dict()
    assert unpack(pack(fields), may_unpickle=False)["_class"].endswith("FormRequest")
    for name in ("os.system", "antigravity.fly", "scrapy.Spider", ["a"]):
        with pytest.raises((ValueError, TypeError)):
            unpack(b"j" + json.dumps({"url": URL, "_class": name}).encode(), may_unpickle=False)


@each_row("text", [b"", b"[1]", b'{"":["code","x"]}', b'{"":1}', b'{"":["bytes","?"]}', b"nonsense", b"[" * 100_000])
def test_a_hostile_payload_is_an_error_of_its_own(text) -> None:
    """Nothing else happens."""
    with pytest.raises((ValueError, TypeError, RecursionError)):
        unpack(b"j" + text, may_unpickle=False)


def with_rows(folder: Path, *payloads: bytes | None) -> Path:
    job = EmbeddedJob(folder, {"policy": "host"})
    job.frontier.schedule([Candidate(f"{URL}{number}", payload=payload) for number, payload in enumerate(payloads)])
    job.close()
    return folder


def with_failure(folder: Path, payload: bytes) -> Path:
    """A job whose one request has failed, and is not queued again."""
    job = EmbeddedJob(with_rows(folder, payload), {"policy": "host"})
    while (lease := job.frontier.lease()) is None:
        job.frontier.flush()
    job.frontier.finish(lease, Outcome(OutcomeKind.FAILED, -2))
    job.close()
    return folder


def payloads_of(folder: Path) -> list[bytes]:
    job = EmbeddedJob(folder, {"policy": "host", "per_queue": 10, "max_connections": 10, "min_delay": 0})
    found = []
    while (lease := job.frontier.lease()) or (not job.frontier.is_done and len(found) < 3):
        if lease is None:
            job.frontier.flush()
        else:
            found.append(lease.payload or b"")
    job.close()
    return found


def test_a_job_with_pickles_is_refused_in_one_line(tmp_path, monkeypatch) -> None:
    """Nothing is unpickled, and nothing changed; a job without any is opened."""
    monkeypatch.delenv(UNPICKLE, raising=False)
    mark = tmp_path / "MARK"
    folder = with_rows(tmp_path / "job", pack({"url": URL}), b"p" + pickle.dumps(Marks(mark)))
    for _ in range(2):
        with pytest.raises(FormatMismatch, match=f"{UNPICKLE}=1") as refused:
            settle_pickles(folder)
    assert "\n" not in str(refused.value)
    assert not mark.exists()
    other = with_rows(tmp_path / "other", pack({"url": URL}), b"kkept", None)
    settle_pickles(other)
    settle_pickles(other)
    settle_pickles(tmp_path / "none")


def test_pickles_of_failed_requests_are_pickles_of_the_job(tmp_path, monkeypatch) -> None:
    """A retry queues them again: until then nothing reads them, and then they must be JSON."""
    monkeypatch.delenv(UNPICKLE, raising=False)
    fields = Request(URL, cb_kwargs={"a": b"1"}).to_dict()
    folder = with_failure(tmp_path / "job", b"p" + pickle.dumps(fields))
    before = {path.name for path in (folder / "state").iterdir()}
    with pytest.raises(FormatMismatch, match=f"{UNPICKLE}=1"):
        settle_pickles(folder)
    assert {path.name for path in (folder / "state").iterdir()} == before
    monkeypatch.setenv(UNPICKLE, "1")
    settle_pickles(folder)
    monkeypatch.delenv(UNPICKLE)
    settle_pickles(folder)
    job = EmbeddedJob(folder, {"policy": "host"})
    assert job.frontier.operations.retry(lambda _: True).queued == 1
    row = job.frontier.operations.get(f"{URL}0".encode())
    job.close()
    assert row is not None
    assert row.payload == pack(fields)


def test_the_operator_has_pickles_converted(tmp_path, monkeypatch) -> None:
    """A pickle that JSON cannot hold stays, and is read in that run."""
    monkeypatch.setenv(UNPICKLE, "1")
    plain, odd = Request(URL + "0", cb_kwargs={"a": (1,)}).to_dict(), Request(URL + "1", meta={"a": {1}}).to_dict()
    folder = with_rows(tmp_path / "job", b"p" + pickle.dumps(plain), b"p" + pickle.dumps(odd), pack({"url": URL}))
    settle_pickles(folder)
    found = payloads_of(folder)
    assert sorted(one[:1] for one in found) == [b"j", b"j", b"p"]
    assert pack(plain) in found
    (left,) = [one for one in found if one[:1] == b"p"]
    assert unpack(left, may_unpickle=True) == odd
    with pytest.raises(ValueError, match="a pickle"):
        unpack(left, may_unpickle=False)
    monkeypatch.delenv(UNPICKLE)
    with pytest.raises(FormatMismatch):
        settle_pickles(folder)
