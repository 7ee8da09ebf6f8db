"""What a gate has to keep of the Crawl-delays of its origins."""

from anabranch.crawler.robots import delays as module
from anabranch.crawler.robots.delays import CrawlDelays
from anabranch.frontier.models import GateKey

A, B, C = GateKey("a.test"), GateKey("b.test"), GateKey("c.test")


def test_a_gate_keeps_the_longest_delay_of_its_origins() -> None:
    """Whichever is told last; one that is taken back takes no memory."""
    delays = CrawlDelays()
    told = [("http", 9.0), ("https", 2.0), ("http", 0.0), ("https", 0.0)]
    assert [delays.learn(A, origin, delay_s) for origin, delay_s in told] == [9.0, 9.0, 2.0, 0.0]
    assert len(delays) == 0


def test_of_a_gate_with_very_many_origins_those_with_the_longest_delays_are_kept(monkeypatch) -> None:
    """A host has 65,535 ports, and each may have a robots.txt."""
    monkeypatch.setattr(module, "MAX_OF_GATE", 2)
    delays = CrawlDelays()
    assert [delays.learn(A, str(delay_s), delay_s) for delay_s in (3.0, 5.0, 4.0)] == [3.0, 5.0, 5.0]
    assert len(delays) == 2
    assert delays.learn(A, "5.0", 0.0) == 4.0


def test_all_origins_together_are_bounded_and_the_gate_told_of_longest_ago_goes_first() -> None:
    """A gate that was told of again is young."""
    delays = CrawlDelays(most=3)
    delays.learn(A, "http", 9.0)
    delays.learn(B, "http", 9.0)
    delays.learn(A, "https", 2.0)
    delays.learn(C, "http", 9.0)
    assert len(delays) == 3
    assert (delays.learn(A, "https", 1.0), delays.learn(B, "https", 1.0)) == (9.0, 1.0)
    for port in range(100):
        delays.learn(GateKey(f"{port}.test"), "http", 1.0)
    assert len(delays) == 3


def test_more_origins_of_one_gate_than_all_may_have_are_forgotten_together() -> None:
    """The bound holds even then; the delay that was just learnt still counts."""
    delays = CrawlDelays(most=1)
    delays.learn(A, "http", 9.0)
    assert delays.learn(A, "https", 2.0) == 9.0
    assert len(delays) == 0
