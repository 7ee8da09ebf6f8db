from anabranch.crawler.lab.web.ledger import HostBooks, HostEntry, Ledger, Rule
from anabranch.crawler.lab.web.ledger_table import ledger_table


def entry(host: str, requests: int, *, together: int = 1) -> HostEntry:
    """So many requests of a second, one each two seconds, or so many together."""
    books = HostBooks(host, Rule(), None)
    for number in range(requests):
        for _ in range(together):
            books.begin(2.0 * number)
        for _ in range(together):
            books.end(2.0 * number, 2.0 * number + 1, 5_000)
    return books.entry()


def ledger_of(*entries: HostEntry, strangers: int = 0) -> Ledger:
    return Ledger(rule=Rule(), hosts=entries, strangers=strangers, wall_s=10.0, cpu_s=2.5, longest_lag_s=0.012)


def test_a_row_says_what_the_host_has_borne() -> None:
    """Gaps in milliseconds, bodies in kilobytes; the note says how busy the server was."""
    table = ledger_table(ledger_of(entry("a.test", 3), entry("b.test", 1)))
    assert table.rows[0] == ("a.test", 3, 1, 1000.0, 2000.0, 0.5, 15, 0, 0, 0)
    assert table.rows[1] == ("b.test", 1, 1, None, None, None, 5, 0, 0, 0)
    assert "took 25% of a core and was at worst 12.0 ms late." in table.note
    assert "does not have" not in table.note


def test_who_was_wronged_stands_first() -> None:
    """Whatever its size."""
    table = ledger_table(ledger_of(entry("large.test", 9), entry("wronged.test", 1, together=2)))
    assert [row[0] for row in table.rows] == ["wronged.test", "large.test"]
    assert table.rows[0][-2] == 1


def test_small_hosts_share_a_row() -> None:
    """With their sums, and the worst of them."""
    hosts = [entry(f"h{number}.test", 5 - number) for number in range(5)]
    table = ledger_table(ledger_of(*hosts, strangers=2), rows=2)
    assert [row[:3] for row in table.rows] == [("h0.test", 5, 1), ("h1.test", 4, 1), ("3 others", 6, 1)]
    assert "2 requests were for hosts that the web does not have" in table.note
