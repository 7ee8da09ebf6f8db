"""Learns which parameters of URLs change nothing, as in `/page?session=RANDOM`: one page under endless many URLs. Pure.

    rules = ParameterRules()
    undone = rules.learn(url, signature_of)     a URL was answered
    rule = rules.skips(url)                     before a fetch; a rule: skip the URL, None: fetch it

A template is a URL without the values of one parameter. If `LEARNT` answered URLs of a template had equal payloads and equal
links, the parameter is known to change nothing, and one in `SAMPLED` of its further URLs is fetched. The first difference
undoes the rule, for good. So URLs stay skipped only while all that was fetched of their template was equal.

Parameters are `name=value` in the query, and behind a semicolon in the path. A name that occurs twice is one parameter. The
order of parameters is part of the template. A parameter that matters now and then has a first difference.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from anabranch.crawler.extract.links import Link
from anabranch.crawler.urls.parsing import authority_of

#: Equal URLs of a template from which on its parameter changes nothing, and how many of its further URLs one is fetched of.
LEARNT: Final = 50
SAMPLED: Final = 20
#: Parameters of a URL that are looked at, and the longest name of one.
MAX_PARAMETERS: Final = 8
_MAX_NAME: Final = 64
#: Templates that are remembered, of one site and of all (300 bytes each). The one that was used least recently goes.
SITE_TEMPLATES: Final = 4096
TEMPLATES: Final = 65_536

_IN_PATH = re.compile(rf";([^=;/?]{{1,{_MAX_NAME}}})=")


class Template(NamedTuple):
    """A URL without the values of one parameter."""

    name: str  #: of the parameter
    url: str  #: with nothing behind `name=`


class _Known:
    """The answers of a template so far."""

    __slots__ = ("equal", "signature", "turn")

    def __init__(self, signature: bytes, equal: int) -> None:
        self.signature = signature
        self.equal = equal  #: URLs that were answered, all equal; -1: two of them differ
        self.turn = 0  #: URLs that came since the rule is in force

    @property
    def is_rule(self) -> bool:
        return self.equal >= LEARNT

    def count(self) -> None:
        """Another URL had an equal answer."""
        self.equal += 1

    def undo(self) -> bool:
        """Two URLs differ; whether it was a rule."""
        was_rule = self.is_rule
        self.equal, self.signature = -1, b""
        return was_rule

    def is_turn(self) -> bool:
        """A URL has come: whether it is the one in `SAMPLED`."""
        self.turn += 1
        return self.turn % SAMPLED == 0


class ParameterRules:
    """The rules of one job. Cost: 0.1 µs for a URL without parameters, else 2 µs for each parameter, and its signature."""

    def __init__(self, site_templates: int = SITE_TEMPLATES, templates: int = TEMPLATES) -> None:
        self._site_templates = site_templates
        self._templates = templates
        self._count = 0
        self._sites: OrderedDict[str, OrderedDict[bytes, _Known]] = OrderedDict()

    def __len__(self) -> int:
        """The number of templates that are remembered."""
        return self._count

    def learn(self, url: str, signature_of: Callable[[Template], bytes | None] | None) -> list[Template]:
        """A URL was answered: the templates of which the rule is undone by it.

        `signature_of` tells what is compared of the answer. If it or its result is None, the answer is like no other. It is not
        called for a template of which two URLs differ.
        """
        undone = []
        for template in templates_of(url):
            known = self._find(template)
            if known is not None and known.equal < 0:
                continue
            signature = None if signature_of is None else signature_of(template)
            if known is None:
                self._remember(template, _Known(signature or b"", -1 if signature is None else 1))
            elif signature == known.signature:
                known.count()
            elif known.undo():
                undone.append(template)
        return undone

    def keep(self, url: str) -> list[Template]:
        """The parameters of this URL matter, whatever was learnt: the templates of which the rule is undone by it."""
        return self.learn(url, None)

    def skips(self, url: str) -> Template | None:
        """The rule by which a URL is not fetched; None: fetch it. Each call counts: of `SAMPLED` the last one is fetched."""
        for template in templates_of(url):
            known = self._find(template)
            if known is not None and known.is_rule and not known.is_turn():
                return template
        return None

    def rule_for(self, url: str) -> Template | None:
        """The rule that holds for a URL; None without one. Changes nothing."""
        return next(filter(self.holds, templates_of(url)), None)

    def holds(self, template: Template) -> bool:
        """Whether the rule of a template is in force."""
        templates = self._sites.get(authority_of(template.url))
        known = None if templates is None else templates.get(_key(template))
        return known is not None and known.is_rule

    def signature(self, template: Template) -> bytes:
        """Return the signature that all answered URLs of a rule share."""
        return self._sites[authority_of(template.url)][_key(template)].signature

    def restore(self, template: Template, signature: bytes | None) -> None:
        """Take over a rule of an earlier run; None: one that was undone."""
        self._forget(template)
        self._remember(template, _Known(signature or b"", -1 if signature is None else LEARNT))

    def undo(self, template: Template) -> None:
        """The parameter matters, for good."""
        known = self._find(template)
        if known is None:
            self.restore(template, None)
        else:
            known.undo()

    def _find(self, template: Template) -> _Known | None:
        site, key = authority_of(template.url), _key(template)
        templates = self._sites.get(site)
        if templates is None or (known := templates.get(key)) is None:
            return None
        self._sites.move_to_end(site)
        templates.move_to_end(key)
        return known

    def _remember(self, template: Template, known: _Known) -> None:
        """Add a template. One of the same site makes room if that has many, else one of the site that came least recently."""
        site = authority_of(template.url)
        templates = self._sites.setdefault(site, OrderedDict())
        self._sites.move_to_end(site)
        if len(templates) >= self._site_templates:
            templates.popitem(last=False)
            self._count -= 1
        templates[_key(template)] = known
        self._count += 1
        if self._count > self._templates:
            oldest, its_templates = next(iter(self._sites.items()))
            its_templates.popitem(last=False)
            self._count -= 1
            if not its_templates:
                del self._sites[oldest]

    def _forget(self, template: Template) -> None:
        templates = self._sites.get(authority_of(template.url))
        if templates is not None and templates.pop(_key(template), None) is not None:
            self._count -= 1


def _key(template: Template) -> bytes:
    """A template in 16 bytes: a URL may be long."""
    return blake2b("\n".join(template).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def templates_of(url: str) -> Iterator[Template]:
    """The templates of a canonical URL, one for each of its first `MAX_PARAMETERS` parameters."""
    if "?" not in url and ";" not in url:
        return
    names = dict.fromkeys(_names(url))
    for name in list(names)[:MAX_PARAMETERS]:
        yield Template(name, without_values(url, name))


def _names(url: str) -> Iterator[str]:
    path, _, query = url.partition("?")
    if ";" in path:
        for found in _IN_PATH.finditer(path):
            yield found[1]
    for part in query.split("&", 4 * MAX_PARAMETERS):
        name, equals, _ = part.partition("=")
        if equals and 0 < len(name) <= _MAX_NAME:
            yield name


def without_values(url: str, name: str) -> str:
    """The URL with nothing behind each `name=`."""
    start = f"{name}="
    if start not in url:
        return url
    path, mark, query = url.partition("?")
    if f";{start}" in path:
        head, *rest = path.split(f";{start}")
        path = head + "".join(f";{start}{_behind_value(piece)}" for piece in rest)
    if start in query:
        query = "&".join(start if part.startswith(start) else part for part in query.split("&"))
    return f"{path}{mark}{query}"


def _behind_value(text: str) -> str:
    """Return the text behind the value of a path parameter: from the next slash or semicolon on."""
    ends = [end for end in (text.find(";"), text.find("/")) if end >= 0]
    return text[min(ends) :] if ends else ""


def carries(links: Iterable[Link], name: str) -> bool:
    """Whether one of the links has this parameter."""
    start = f"{name}="
    return any(start in link.url for link in links)


def signature(payload: bytes, links: Iterable[Link], name: str) -> bytes:
    """Return the signature of an answer: of its payload (or digest), and of its links without the parameter's values."""
    found = {f"{link.hop} {without_values(link.url, name)}" for link in links}
    digest = blake2b(payload, digest_size=16)
    digest.update("\n".join(["", *sorted(found)]).encode("utf-8", "surrogatepass"))
    return digest.digest()


def payload_without_values(payload: bytes, name: str) -> bytes:
    """A page without the parameter's values in its tags, as in `<a href="?name=value">`. Text stays as it is. Linear time."""
    start = name.encode("utf-8", "surrogatepass") + b"="
    if start not in payload:
        return payload
    values = re.compile(rb"(?<=[?&;])" + re.escape(start) + rb"[^&;#/\"'<>\s]*")
    left = start.replace(b"\\", rb"\\")
    text, *tags = payload.split(b"<")
    for number, tag in enumerate(tags):
        if start in tag:
            inside, end, behind = tag.partition(b">")
            tags[number] = values.sub(left, inside) + end + behind
    return b"<".join([text, *tags])
