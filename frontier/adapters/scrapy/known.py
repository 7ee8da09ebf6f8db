"""Requests that the Frontier is known to have. Pure.

Most links of a page lead to pages that the crawl knows, and the same ones come again and again. For the latest of them the
answer needs no fingerprint, no candidate and no filter.
"""

from __future__ import annotations

from scrapy import Request
from scrapy.utils.request import RequestFingerprinter, RequestFingerprinterProtocol

#: Requests of a generation; two are kept, some 10 MB of URLs.
_GENERATION = 32_768
#: In a request's `meta`: its URL is not made canonical (Scrapy 2.18).
_VERBATIM = "verbatim_url"


class Known:
    """The latest 32,768 requests, and up to as many before them; the Frontier's filter knows the others.

    Scrapy's own fingerprinter looks at method, URL and body, and at `verbatim_url` in the meta; so two GETs of one URL without
    the others are one. With another fingerprinter its fingerprint says what is one.
    """

    def __init__(self, fingerprinter: RequestFingerprinterProtocol) -> None:
        self._fingerprint = fingerprinter.fingerprint
        self._is_usual = type(fingerprinter) is RequestFingerprinter
        self._young: set[str | bytes] = set()
        self._old: set[str | bytes] = set()

    def __contains__(self, request: Request) -> bool:
        name = self._name(request)
        return name in self._young or name in self._old

    def add(self, request: Request) -> None:
        """The Frontier has it, and takes it no more."""
        if len(self._young) >= _GENERATION:
            self._young, self._old = set(), self._young
        self._young.add(self._name(request))

    def _name(self, request: Request) -> str | bytes:
        is_plain = self._is_usual and request.method == "GET" and not request.body and _VERBATIM not in request.meta
        return request.url if is_plain else self._fingerprint(request)
