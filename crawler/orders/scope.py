"""What a crawl order says of URLs and of the scope: what counts as one URL, which links are followed, and what is a trap."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from anabranch.crawler.orders.types import Count, Name, OwnFunction, Positive, Section
from anabranch.crawler.outcomes.ownfunctions import shown
from anabranch.crawler.urls.canonicalization import DEFAULT, check_names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"has {shown(text)!r}, which is no regular expression: {error}") from error
    return text


def _surt(text: str) -> str:
    from anabranch.frontier.errors import PolicyError  # noqa: PLC0415 - the Frontier is slow to import, and most orders have no prefix
    from anabranch.frontier.policies.surt import parse_surt  # noqa: PLC0415 - as above

    try:
        parse_surt(text)
    except PolicyError as error:
        raise ValueError(f"has a fault: {error}") from error
    return text


def _canonicalization(names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        check_names(names)
    except ValueError as error:
        raise ValueError(f"has a fault: {error}") from error
    return names


_Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]
_Surt = Annotated[str, AfterValidator(_surt)]


class UrlsSection(Section):
    """What counts as one URL."""

    canonicalization: tuple[Name, ...] = DEFAULT  #: rules that make the key for dedup, in their order; see crawler/urls

    _checked = field_validator("canonicalization")(_canonicalization)


class ScopeSection(Section):
    """Which links are followed. The rules and their order: `crawler/scope/opening.py`."""

    scope: Literal["host", "prefix", "domain", "surt", "any", "page"] = "host"  #: the place that a seed opens
    max_hops: Count = 20  #: hops from a seed, of whatever kind
    max_embeds: Count = 2  #: hops E, R, X in a row that are followed off the seeds' places, too; 0: none
    include: tuple[_Pattern, ...] = ()  #: regular expressions: what one is found in is in, too
    exclude: tuple[_Pattern, ...] = ()  #: regular expressions: what one is found in is out
    accept: tuple[_Surt, ...] = ()  #: SURT prefixes, hosts or URLs: what they cover is in, too
    reject: tuple[_Surt, ...] = ()  #: SURT prefixes, hosts or URLs: what they cover is out
    block: tuple[_Pattern, ...] = ()  #: regular expressions: never fetched, even if queued before (status -5001)
    max_path_repeats: Count = 2  #: times that a path segment, or a group of them, may stand in a row; 0: no limit
    max_path_depth: Count = 20  #: segments of a path; 0: no limit
    max_url_length: Count = 2083  #: characters; 0: no limit but the parser's
    schemes: Annotated[tuple[Literal["http", "https"], ...], Field(min_length=1)] = ("http", "https")  #: others are out
    similar: Literal["", "published", "site-bound"] = (
        ""  #: drop URLs like those taken before, by dedup's similarity filter
    )
    similar_expect: Positive = 1_000_000  #: URLs that this filter is made for
    rules: tuple[OwnFunction, ...] = ()  #: own rules, package.module:function, after all others
