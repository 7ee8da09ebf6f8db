"""The twelfth field of `crawl.log`: notes in Heritrix's words, in one order, each at most once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.crawler.outcomes.ownfunctions import OwnFunctionFailed

#: Bytes came behind the answer, on the same connection; they are not kept.
SURPLUS = "surplusBytes"
#: A page that was excluded by its host's robots.txt.
ROBOTS_EXCLUDED = "robotExcluded"
#: The body was met before under this or another URL.
DUPLICATE_DIGEST = "duplicate:digest"
#: The server said that nothing has changed (304).
NOT_MODIFIED = "duplicate:server-not-modified"
#: A revisit record stands in the WARC; the profile follows.
WARC_REVISIT = "warcRevisit:"


class Noted(NamedTuple):
    """What may be noted of a visit; of most nothing is."""

    attempts: int = 0  #: tries that counted before this one
    cuts: tuple[str, ...] = ()  #: what of the answer was cut: lenTrunc, timeTrunc, midFetchTrunc, headerTrunc, decTrunc
    has_surplus: bool = False  #: bytes came behind the answer
    robots_excluded: bool = False
    duplicate: str = ""  #: DUPLICATE_DIGEST, NOT_MODIFIED, or nothing
    revisit: str = ""  #: profile of the revisit record: digest, notModified
    quota: str = ""  #: the limit that keeps it from being fetched, such as pages_per_host
    dropped_links: int = 0  #: links beyond the limit of outlinks
    lost_links: int = 0  #: links that a function of the operator's own failed for
    broken: Exception | None = None  #: a processor's own fault, or that of a function of the operator's own
    stopped_by: str = ""  #: a processor of the operator's own that ended the page
    more: tuple[str, ...] = ()  #: of extractors and others, as they are


def round_note(number: int) -> str:
    """`round:2`, the last note of every line. One without it is of before lines had it."""
    return f"round:{number}"


def annotations_of(noted: Noted) -> tuple[str, ...]:
    """The notes, as `Nt`, cuts, `surplusBytes`, `robotExcluded`, `duplicate:…`, `warcRevisit:…`, `Q:…`, `dol:N`, `fol:N`,
    `err=Class`, `stopped=NAME`, others.

    The name of a function of the operator's own follows its `err=OwnFunctionFailed`: `rule=…`, `key=…`, `processor=…`.
    """
    return tuple(dict.fromkeys(filter(None, _notes(noted)))) if any(noted) else ()


def _notes(noted: Noted) -> Iterable[str]:
    if noted.attempts:
        yield f"{noted.attempts + 1}t"
    yield from noted.cuts
    if noted.has_surplus:
        yield SURPLUS
    if noted.robots_excluded:
        yield ROBOTS_EXCLUDED
    yield noted.duplicate
    if noted.revisit:
        yield f"{WARC_REVISIT}{noted.revisit}"
    if noted.quota:
        yield noted.quota if noted.quota.startswith("Q:") else f"Q:{noted.quota}"
    if noted.dropped_links:
        yield f"dol:{noted.dropped_links}"
    if noted.lost_links:
        yield f"fol:{noted.lost_links}"
    if noted.broken is not None:
        yield f"err={type(noted.broken).__name__}"
        if isinstance(noted.broken, OwnFunctionFailed):
            yield noted.broken.annotation
    if noted.stopped_by:
        yield f"stopped={noted.stopped_by}"
    yield from noted.more
