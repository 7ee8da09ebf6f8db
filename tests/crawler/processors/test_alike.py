"""The similarity filter in the chain: it drops what is alike, and learns what the Frontier was given."""

import pytest

from anabranch.crawler.chain import Step
from anabranch.crawler.processors import alike as module
from anabranch.crawler.processors.alike import Unlike
from anabranch.crawler.scope.similar import Similar
from anabranch.frontier.models import Candidate, OutcomeKind
from tests.crawler.builder import visit

A, B, MIXED = "http://a.test/a/x", "http://a.test/b/y", "http://a.test/a/y"


class Crawl:
    """A filter over a folder, and a Frontier that notes when it is asked to be durable."""

    def __init__(self, similar) -> None:
        self.similar = similar
        self.flushed = 0
        self.unlike = Unlike(similar, self._flush)

    async def _flush(self) -> None:
        self.flushed += 1

    async def kept(self, *urls, hops="L"):
        one = visit()
        one.discovered = [Candidate(url, hops=hops) for url in urls]
        assert await self.unlike(one) is Step.PROCEED
        return [candidate.url for candidate in one.discovered]

    async def end(self, kind, *urls):
        """A page that led to these has ended so."""

        async def dispose(_):
            return kind

        one = visit()
        one.discovered = [Candidate(url) for url in urls]
        assert await self.unlike.keeping(dispose)(one) is kind


async def opened(folder):
    return Crawl(await Similar.open(folder, "published", 1000))


@pytest.fixture
async def crawl(tmp_path):
    made = await opened(tmp_path / "similar")
    yield made
    await made.similar.close()


async def test_what_is_like_pages_that_have_ended_is_dropped(crawl) -> None:
    """Whatever ended them, if the Frontier took what they led to."""
    assert await crawl.kept(A, B, MIXED) == [A, B]
    assert await crawl.kept(A, B) == [A, B], "nothing was learnt of a page that has not ended"
    await crawl.end(OutcomeKind.DONE, A)
    await crawl.end(OutcomeKind.DEFERRED, B)
    assert await crawl.kept(A, B, MIXED, "http://b.test/") == ["http://b.test/"]


async def test_a_page_whose_lease_was_lost_teaches_nothing(crawl) -> None:
    """The Frontier did not take what it led to; it comes again, and so do its links."""
    await crawl.end(None, A, B)
    assert await crawl.kept(A, B) == [A, B]


async def test_the_target_of_a_redirect_is_taken_whatever_it_is_like(crawl) -> None:
    """It is the page itself, under its other name."""
    await crawl.end(OutcomeKind.DONE, A, B)
    assert await crawl.kept(MIXED, hops="LR") == [MIXED]


async def test_what_was_learnt_is_written_down_when_it_is_much_and_at_the_end(tmp_path, monkeypatch) -> None:
    """Each time only once the Frontier is durable; the next run knows it."""
    crawl = await opened(tmp_path / "similar")
    monkeypatch.setattr(module, "STORED_AT", 2)
    await crawl.end(OutcomeKind.DONE, A)
    assert (crawl.flushed, len(crawl.similar)) == (0, 0)
    await crawl.end(OutcomeKind.DONE, B)
    assert (crawl.flushed, len(crawl.similar)) == (1, 2)
    await crawl.end(OutcomeKind.DONE, "http://c.test/")
    await crawl.unlike.close()
    assert crawl.flushed == 2
    again = await opened(tmp_path / "similar")
    assert await again.kept(A, B, MIXED, "http://c.test/") == []
    await again.similar.close()


async def test_a_crash_makes_it_take_more_and_never_less(tmp_path) -> None:
    """What was not written down is forgotten; what was is not."""
    crawl = await opened(tmp_path / "similar")
    await crawl.end(OutcomeKind.DONE, A)
    await crawl.similar.store(crawl._flush)
    await crawl.end(OutcomeKind.DONE, B)
    await crawl.similar.close()  # without a last word, as a killed process leaves it
    again = await opened(tmp_path / "similar")
    assert await again.kept(A, B, MIXED) == [B]
    await again.similar.close()


async def test_the_filter_is_let_go_of_though_the_frontier_fails(tmp_path) -> None:
    """The error passes through, the folder is free."""
    crawl = await opened(tmp_path / "similar")

    async def broken() -> None:
        raise OSError("no store")

    unlike = Unlike(crawl.similar, broken)
    await unlike.keep([Candidate(A)])
    with pytest.raises(OSError, match="no store"):
        await unlike.close()
    await (await opened(tmp_path / "similar")).similar.close()
