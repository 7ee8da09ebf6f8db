"""How each seed fared: `[code] [status] [seed] [redirect]`, as in Heritrix, unanswered seeds first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.reporting.reports.table import Report, text_lines
from anabranch.frontier.models import UrlRecord

#: The report's file.
SEEDS_REPORT = "seeds-report.txt"

#: Seeds that the command shows at its end.
SEEDS_SHOWN = 20

_HEADS = ("code", "status", "seed", "redirect or reason")


class SeedFact(NamedTuple):
    """How a seed fared."""

    url: str
    status: int  #: fetch status; 0 = not tried yet
    reason: str  #: more words about a failure, empty if there are none
    redirect: str | None  #: the seed it redirected to

    @property
    def is_answered(self) -> bool:
        """Its server gave an HTTP answer."""
        return self.status > 0


def seed_facts(
    given: Iterable[str], redirects: Mapping[str, str], ended: Mapping[str, UrlRecord], words: Mapping[str, str]
) -> list[SeedFact]:
    """How the given seeds fared: where they redirected to, how they ended, what else is known of their failures. Pure.

    What is known of a seed that was answered later is left out.
    """
    facts = [SeedFact(url, ended[url].status if url in ended else 0, "", redirects.get(url)) for url in given]
    return [fact if fact.is_answered else fact._replace(reason=words.get(fact.url, "")) for fact in facts]


def seeds_table(seeds: Iterable[SeedFact]) -> Report:
    """A row a seed, unanswered ones first."""
    ranked = sorted(seeds, key=lambda seed: (seed.is_answered, seed.url))
    return Report(_HEADS, [_row(seed) for seed in ranked], right=(6, -10))


def seeds_report(seeds: Iterable[SeedFact]) -> str:
    """The table as text."""
    return "".join(text_lines(seeds_table(seeds)))


def seeds_shown(seeds: Sequence[SeedFact], file: Path) -> str:
    """The seeds report as it is said: at most `SEEDS_SHOWN` seeds, and where the others stand."""
    report = seeds_report(seeds)
    if len(seeds) <= SEEDS_SHOWN:
        return report
    shown = report.splitlines(keepends=True)[: SEEDS_SHOWN + 1]
    return f"{''.join(shown)}… and {len(seeds) - SEEDS_SHOWN} more seeds in {file}\n"


def _row(seed: SeedFact) -> tuple[int, str, str, str]:
    word = "CRAWLED" if seed.is_answered else "NOTCRAWLED"
    detail = seed.redirect or seed.reason or ("" if seed.is_answered else describe(seed.status))
    return seed.status, word, seed.url, detail
