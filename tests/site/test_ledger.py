from math import inf
from pathlib import Path

from tests.site.ledger import Ledger, Visit, line_writer


def noted(*visits: tuple[str, str, float, float, int], ledger: Ledger | None = None) -> Ledger:
    """A ledger of (host, path, start, end, status), begun and ended in the order of time."""
    ledger = ledger or Ledger()
    moments = [(visit[2], 1, visit) for visit in visits] + [(visit[3], 0, visit) for visit in visits]
    tickets: dict[tuple[str, str, float, float, int], int] = {}
    for now_s, starts, visit in sorted(moments):
        if starts:
            tickets[visit] = ledger.begin(visit[0], visit[1], now_s)
        else:
            ledger.end(tickets[visit], visit[4], now_s)
    return ledger


def test_requests_are_counted_per_url_while_still_in_service() -> None:
    """A request counts from its start, whether it has ended or not."""
    ledger = noted(("a.test", "/", 1.0, 2.0, 200), ("a.test", "/x?y", 1.5, 3.0, 404))
    ledger.begin("a.test", "/", 4.0)
    assert ledger.counts() == {"http://a.test/": 2, "http://a.test/x?y": 1}
    assert (ledger.count("http://a.test/"), ledger.count("http://b.test/"), ledger.in_service) == (2, 0, 1)


def test_counts_are_a_copy() -> None:
    """A change to the returned counts does not change the ledger."""
    ledger = noted(("a.test", "/", 1.0, 2.0, 200))
    ledger.counts().clear()
    assert ledger.count("http://a.test/") == 1


def test_statuses_stand_in_the_order_of_the_starts() -> None:
    """A request that ends first but started later comes later."""
    ledger = noted(("a.test", "/", 1.0, 9.0, 429), ("a.test", "/", 2.0, 3.0, 200), ("b.test", "/", 0.0, 1.0, 500))
    assert ledger.statuses("http://a.test/") == [429, 200]
    assert ledger.answered() == {"http://a.test/"}
    assert ledger.answered(500) == {"http://b.test/"}


def test_requests_in_service_are_counted_per_host() -> None:
    """Overlap on one host counts, overlap of two hosts does not."""
    ledger = noted(
        ("a.test", "/1", 1.0, 4.0, 200),
        ("a.test", "/2", 2.0, 3.0, 200),
        ("a.test", "/3", 3.5, 5.0, 200),
        ("b.test", "/1", 2.5, 4.5, 200),
    )
    assert (ledger.max_in_service("a.test"), ledger.max_in_service("b.test")) == (2, 1)
    assert (ledger.max_in_service(), ledger.max_in_service("c.test")) == (2, 0)


def test_requests_that_have_not_ended_count_as_in_service() -> None:
    """The maximum sees what still runs."""
    ledger = Ledger()
    for path in ("/1", "/2", "/3"):
        ledger.begin("a.test", path, 1.0)
    assert ledger.max_in_service("a.test") == 3


def test_only_the_first_end_of_a_request_counts() -> None:
    """An answer that was sent stays answered when the connection breaks afterwards."""
    ledger = Ledger()
    ticket = ledger.begin("a.test", "/", 1.0)
    ledger.end(ticket, 200, 2.0)
    ledger.end(ticket, 499, 3.0)
    assert ledger.statuses("http://a.test/") == [200]
    assert ledger.begin("a.test", "/", 4.0) != ticket
    assert ledger.max_in_service("a.test") == 1


def test_the_shortest_gap_is_between_starts_of_one_host() -> None:
    """Other hosts' starts in between do not count, and one start has no gap."""
    ledger = noted(
        ("a.test", "/1", 1.0, 1.5, 200),
        ("b.test", "/1", 1.1, 1.2, 200),
        ("a.test", "/2", 3.0, 3.5, 200),
        ("a.test", "/3", 4.25, 4.5, 200),
    )
    assert ledger.shortest_gap("a.test") == 1.25
    assert ledger.shortest_gap("b.test") == inf
    ledger.begin("a.test", "/4", 4.5)
    assert ledger.shortest_gap("a.test") == 0.25


def test_the_shortest_rest_is_from_an_end_to_the_next_start() -> None:
    """Fetches that overlap have none."""
    ledger = noted(("a.test", "/1", 1.0, 1.5, 200), ("a.test", "/2", 3.0, 3.5, 200), ("b.test", "/1", 1.6, 9.0, 200))
    assert ledger.shortest_rest("a.test") == 1.5
    assert ledger.shortest_rest("b.test") == inf
    noted(("a.test", "/3", 3.25, 5.0, 200), ledger=ledger)
    assert ledger.shortest_rest("a.test") == -inf


def test_hits_after_the_end_of_a_crawl_are_seen() -> None:
    """A start after the moment counts, also one still in service; a start at the moment does not."""
    ledger = noted(("a.test", "/1", 1.0, 9.0, 200), ("a.test", "/2", 5.0, 6.0, 200))
    assert (ledger.hits_after(5.0), ledger.hits_after(4.9)) == (0, 1)
    ledger.begin("a.test", "/3", 7.0)
    assert ledger.hits_after(5.0) == 1


def test_a_ledger_file_reads_back_as_it_was(tmp_path: Path) -> None:
    """Every line stands in the file when its request has ended; a line cut by a kill is left out."""
    path = tmp_path / "ledger.jsonl"
    ledger = noted(
        ("a.test", "/1", 1.0, 4.0, 200),
        ("a.test", '/"ü"', 2.0, 3.0, 404),
        ledger=Ledger(line_writer(path)),
    )
    with path.open("a") as file:
        file.write('{"start_s": 9.0, "end_')
    again = Ledger.read(path)
    assert again.visits == ledger.visits
    assert again.counts() == ledger.counts()
    assert again.max_in_service("a.test") == 2


def test_a_visit_names_its_url() -> None:
    """Host and raw target make the URL."""
    visit = Visit(start_s=1.0, end_s=2.0, host="a.test", path="/x?y", status=200)
    assert visit.url == "http://a.test/x?y"
