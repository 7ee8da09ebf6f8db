"""The parts of `scripts/bench frontier` that can be checked without timing anything."""

from collections import Counter
from pathlib import Path

import pytest

from anabranch.frontier.composition import FrontierOrder
from anabranch.frontier.records import NEW, SEEN, Candidate, GateKey, Head, Turn
from anabranch.frontier.storelink import MAX_ROWS
from anabranch.frontier.stores.contract import LaneRow, QueueFacts
from scripts.benchmarks import __main__ as bench
from scripts.benchmarks.dedup.lasting import in_child
from scripts.benchmarks.frontier import GROUPS
from scripts.benchmarks.frontier.filling import PER_QUEUE, fill
from scripts.benchmarks.frontier.host import START_S, WORKERS, Host, both
from scripts.benchmarks.frontier.links import BATCH, SAME_HOST, URL_CHARACTERS, Web
from scripts.benchmarks.frontier.millions import ORDER, open_again, open_and_lease, prepare
from scripts.benchmarks.frontier.policies import override_rows, rows_of
from scripts.benchmarks.frontier.speed import POLITENESS

POLITE = FrontierOrder(policy="host", politeness=POLITENESS)


def contents(folder: Path) -> tuple[list[Head], list[QueueFacts], list[LaneRow], list[GateKey]]:
    """Open the store of a closed Frontier and return its rows, queues, lanes by turn (with turn 0), and names of gates."""
    with Host(folder, POLITE, 1, START_S + 1) as host:
        store = host.frontier._store
        queues = store.queues(None, None, 1000)
        lanes = sorted((store.lanes(queue.row.id, None, 1)[0] for queue in queues), key=lambda lane: lane.turn)
        gates = [gate.key for lane in lanes if (gate := store.gate(lane.gate))]
        return store.queued(None, 10_000), queues, [lane._replace(turn=Turn(0)) for lane in lanes], gates


def test_the_subject_is_known_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong group is refused with the names of the right ones, each of which is there once."""
    assert bench.main(["frontier", "--only", "million"]) == 2
    told = capsys.readouterr().err
    assert all(told.count(group.name) == 1 for group in GROUPS)


def test_urls_are_as_long_as_they_are_said_to_be() -> None:
    """The bytes per URL are those of URLs of 53 characters, each of which is there once."""
    urls = [candidate.url for batch in Web(1000).batches(range(9000)) for candidate in batch]
    assert {len(url) for url in urls} == {URL_CHARACTERS}
    assert len(set(urls)) == len(urls) == 9000


def test_every_host_gets_its_share() -> None:
    """Runs of one host's URLs, and all hosts after as many runs as there are hosts."""
    urls = [Web(50).url(number) for number in range(50 * SAME_HOST)]
    assert len({url.rpartition("/archives")[0] for url in urls[:SAME_HOST]}) == 1
    assert set(Counter(url.rpartition("/archives")[0] for url in urls).values()) == {SAME_HOST}


def test_pages_have_one_new_link() -> None:
    """The other 59 links are known, and no two pages have the same new one."""
    web = Web(100)
    known = {web.url(number) for number in range(1000)}
    pages = list(web.pages(range(1000, 1020), 1000))
    new = [candidate.url for page in pages for candidate in page if candidate.url not in known]
    assert new == [web.url(number) for number in range(1000, 1020)]
    assert {len(page) for page in pages} == {BATCH}


def test_the_host_fetches_what_it_scheduled() -> None:
    """All of it, through gates that rest, and with as many at once as it has workers."""
    with Host(None, POLITE, 200) as host:
        host.schedule(Web(200).batches(range(1000)))
        host.fetch(400)
        assert host.frontier.in_flight == WORKERS - 1
        assert host.frontier.pending + host.frontier.in_flight == 600
        host.fetch(600)
        assert host.frontier.is_done
        # Five URLs a host, two slots that rest 3 s: the fifth comes after two rests.
        assert host.frontier.now_s() >= START_S + 6


def test_the_host_waits_for_a_store_that_is_behind(tmp_path: Path) -> None:
    """A batch that is refused because too much is not durable yet is sent again: it is not lost and comes once."""
    with Host(tmp_path, POLITE, 1000) as host:
        first, second = Web(1000).candidates(range(MAX_ROWS)), Web(1000).candidates(range(MAX_ROWS, MAX_ROWS + 60))
        host.schedule([first, second])
        host.flush()
        assert host.frontier.pending == MAX_ROWS + 60


def test_a_host_without_urls_does_not_wait_for_ever() -> None:
    """A wrong count is an error that tells what the Frontier waits for."""
    with Host(None, POLITE, 10) as host:
        host.schedule(Web(10).batches(range(10)))
        with pytest.raises(RuntimeError, match=r"URLS.* 0 pending"):
            host.fetch(11)


def test_the_rate_of_both_halves_is_that_of_their_times() -> None:
    """A URL costs what scheduling costs and what fetching costs."""
    assert both(100.0, 100.0) == pytest.approx(50.0)
    assert both(1e12, 700.0) == pytest.approx(700.0)


def test_a_filled_store_is_what_schedule_makes(tmp_path: Path) -> None:
    """Its rows, lanes, queues and gates equal those of a store that scheduled the same URLs in the same order."""
    urls = fill(tmp_path / "filled", POLITE, 40, print)
    filled = contents(tmp_path / "filled")
    assert len(filled[0]) == urls == 40 * PER_QUEUE
    candidates = [Candidate(head.row.url) for head in sorted(filled[0], key=lambda head: head.row.ordinal)]
    with Host(tmp_path / "scheduled", POLITE, 40) as host:
        host.schedule([candidates[start : start + SAME_HOST] for start in range(0, urls, SAME_HOST)])
    assert contents(tmp_path / "scheduled") == filled


def test_a_filled_store_is_fetched_to_its_end(tmp_path: Path) -> None:
    """The filter learns every URL at the first opening, further ones are new, and all of them can be fetched."""
    urls = fill(tmp_path, POLITE, 100, print)
    with Host(tmp_path, POLITE, 100, START_S + 1) as host:
        host.frontier.operations.check()
        known = [Candidate(head.row.url) for head in host.frontier._store.queued(None, urls)]
        assert host.frontier.schedule(known) == [SEEN] * urls
        assert host.frontier.schedule(Web(100).candidates([urls])) == [NEW]
        host.fetch(urls + 1)
        host.frontier.operations.check()
        assert host.frontier.is_done


@pytest.mark.slow
def test_a_killed_child_leaves_a_state_that_opens(tmp_path: Path) -> None:
    """The measurement after the kill opens the state that the killed process was working on."""
    queues = 200
    urls, _ = prepare(tmp_path / "state", queues, print)
    assert urls == queues * PER_QUEUE + queues * 3 // 10
    told = in_child(open_and_lease, tmp_path / "state", queues)
    assert told["count"] == 9 * queues
    assert in_child(open_again, tmp_path / "state", queues)["opened_s"] > 0
    with Host(tmp_path / "state", ORDER, queues, START_S + 1e8) as host:
        host.frontier.operations.check()
        assert host.frontier.counts().done >= 9 * queues


def test_policies_are_measured_by_their_longest_queue() -> None:
    """One host is one queue for `host`; a hash spreads its URLs over several."""
    urls = [f"http://one.example/{number}" for number in range(200)]
    host, hashed = ({row.unit: row for row in rows_of(policy, urls)} for policy in ("host", "bkdr:100"))
    assert host[""].measured == 1.0
    assert "1 queues used, the longest has 200 of 200" in host[""].note
    assert hashed[""].measured is not None
    assert hashed[""].measured > 1
    assert hashed["µs"].measured is not None
    assert hashed["µs"].measured > 0


def test_overrides_are_compiled_and_looked_up() -> None:
    """Half of the hosts that are asked for have one, whatever the number is; each row has its unit."""
    for count in (1, 10, 11):
        assert [(row.name, row.unit) for row in override_rows(count)] == [
            ("policies-overrides-compile", "s"),
            ("policies-overrides-look-up", "µs"),
        ]
