"""Tables of older formats are brought to today's when they are opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.models import Candidate, Outcome, OutcomeKind, QueueKey
from anabranch.frontier.policies import assignment
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.authority import authority
from anabranch.frontier.policies.surt import unescaped_surt_host
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.stores.seal import seal_of
from anabranch.frontier.stores.sql import SqlStore
from tests.postgres_server import server

URLS = [f"http://{host}/{n}" for host in ("a,b.test", "b.a.test", "c.test", "a,b.test:81") for n in ("1", "2", "3,4")]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | Path]:
    if request.param == "sqlite":
        yield tmp_path / "frontier.db"
    else:
        with server() as url:
            yield url


def _old_surts(urls: object) -> list[QueueKey]:
    keys = []
    for url in urls:  # type: ignore[attr-defined]
        found = authority(url)
        assert found is not None
        port = found.name[len(found.host) + 1 :]
        keys.append(QueueKey(unescaped_surt_host(found.host) + (f"#{port}" if port else "")))
    return keys


def _opened(place: str | Path, order: FrontierOrder, tmp_path: Path) -> Frontier:
    return open_frontier(tmp_path / "state", order, store=SqlStore(place))


def _of_format_3(place: str | Path, order: FrontierOrder, tmp_path: Path) -> None:
    """A store as a program of format 3 left it: one URL waits for its retry, one queue is paused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(assignment._PLAIN, "surt", _old_surts)
        with _opened(place, order, tmp_path) as frontier:
            frontier.schedule([Candidate(url) for url in URLS])
            lease = None
            while lease is None:
                frontier.flush()
                lease = frontier.lease()
            assert "," in lease.url
            frontier.finish(lease, Outcome(OutcomeKind.RETRY, after_s=1000.0), [])
            frontier.operations.pause(QueueKey("test,a,b,#81"))
            frontier.flush()
    _set_format(place, "3")


def _set_format(place: str | Path, number: str) -> None:
    engine = create_engine(
        f"sqlite:///{place}" if isinstance(place, Path) else make_url(place).set(drivername="postgresql+psycopg")
    )
    with engine.begin() as connection:
        connection.execute(text("UPDATE crawl SET value = :number WHERE name = 'format'"), {"number": number})
    engine.dispose()
    if isinstance(place, Path):
        seal_of(place).unlink()  # the file is not what its owner left


@pytest.mark.parametrize("scope", [PolitenessScope.HOST, PolitenessScope.QUEUE])
def test_hosts_with_a_comma_leave_the_queue_that_they_shared(
    place: str | Path, scope: PolitenessScope, tmp_path: Path
) -> None:
    """Every row stays, in the queue of its own host, and what is kept beside the rows agrees."""
    order = FrontierOrder(policy="surt", scope=scope)
    _of_format_3(place, order, tmp_path)
    with _opened(place, order, tmp_path) as frontier:
        frontier.check()
        views = {view.key: (view.urls, view.waiting, view.state) for view in frontier.operations.longest(10)}
    assert views == {
        "test,c,": (3, 0, QueueState.INACTIVE),
        "test,a%2Cb,": (3, 1, QueueState.INACTIVE),
        "test,a,b,": (3, 0, QueueState.INACTIVE),
        "test,a%2Cb,#81": (3, 0, QueueState.PAUSED),
    }


def test_a_store_under_another_policy_is_as_it_was(place: str | Path, tmp_path: Path) -> None:
    """Its queues have other names."""
    order = FrontierOrder(policy="host")
    with _opened(place, order, tmp_path) as frontier:
        frontier.schedule([Candidate(url) for url in URLS])
    _set_format(place, "3")
    with _opened(place, order, tmp_path) as frontier:
        frontier.check()
        assert frontier.counts().pending == len(URLS)


def test_a_format_that_is_not_known_is_refused(place: str | Path, tmp_path: Path) -> None:
    """It is that of a newer program, or of one before the first that is kept."""
    order = FrontierOrder(policy="host")
    _opened(place, order, tmp_path).close()
    _set_format(place, "5")
    with pytest.raises(
        FormatMismatch, match="the format is 5 in the job, and this program reads 3, 4; use the version"
    ):
        _opened(place, order, tmp_path)
