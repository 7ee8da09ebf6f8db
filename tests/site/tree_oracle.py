"""What a complete crawl of a tree of real documents must fetch, with stylesheets and images; no code of the crawler is used.

HTML is read by lxml, URLs are joined by urllib, CSS and srcset are read by what stands here. The conventions are those of the
project: embeds of all kinds, `srcset`, `data-src`, meta refresh, styles inline and linked; no forms, no scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from lxml import html  # type: ignore[import-untyped]  # lxml ships no types

from tests.site import oracle

CSS_SUFFIX = ".css"

#: Element -> attributes that hold one URL.
_ONE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "a": ("href", "xlink:href"),
        "area": ("href",),
        "link": ("href",),
        "iframe": ("src",),
        "frame": ("src",),
        "img": ("src",),
        "script": ("src",),
        "source": ("src",),
        "video": ("src", "poster"),
        "audio": ("src",),
        "track": ("src",),
        "embed": ("src",),
        "input": ("src",),
        "object": ("data",),
        "image": ("href", "xlink:href"),
        "use": ("href", "xlink:href"),
    }
)
#: Attributes that hold one URL, or several candidates, on whatever element.
_LATE = ("data-src", "data-original", "data-lazy", "data-src-small", "data-src-medium", "data-full-src")
_CANDIDATES = ("srcset", "imagesrcset", "data-srcset", "data-original-set", "data-lazy-srcset")
#: What is embedded: empty, or a part of the page itself, it is nothing to fetch.
_NAVIGATION = {"a", "area", "link"}

_QUOTED = r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
_CSS_TOKEN = re.compile(
    rf"""/\*.*?(?:\*/|\Z)                                            # a comment
    | @import\s+(?P<import>{_QUOTED})                                # @import "x"
    | url\(\s*(?P<url>{_QUOTED}|(?:\\[0-9a-fA-F]{{1,6}}\s?|\\.|[^\s"'()\\])*)\s*\)
    | image-set\((?P<set>(?:[^()]|\([^()]*\))*)\)                   # image-set("x" 1x, url(y) 2x)
    | {_QUOTED}                                                      # another string""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_STRING = re.compile(r"""url\(\s*([^\s"'()]+)\s*\)|(?<!type\()"([^"]*)"|(?<!type\()'([^']*)'""")
_ESCAPE = re.compile(r"\\([0-9a-fA-F]{1,6})\s?|\\(.)", re.DOTALL)


def tree_and_requisites(root: Path, start: str, base_url: str) -> set[str]:
    """The URLs that a crawl of a folder of files, served at `base_url`, gets answered with 200.

    As `oracle.tree_urls`, with all that pages and stylesheets embed. Limits: those of `tree_urls`; what stands in SVG files and
    in scripts is not read.
    """
    first = oracle._normal(base_url, start)
    todo, found, seen = [first], set(), {first}
    while todo:
        url = todo.pop()
        path = oracle._file_of(root, url, base_url)
        if path is not None and path.is_file():
            found.add(url)
            targets = list(_targets(path, url))
        else:
            targets = [oracle._with_slash(url)] if path is not None and path.is_dir() else []
        fresh = {target for target in targets if oracle._origin(target) == oracle._origin(base_url)} - seen
        seen |= fresh
        todo += sorted(fresh)
    return found


def _targets(path: Path, url: str) -> Iterator[str]:
    suffix = path.suffix.lower()
    if suffix == CSS_SUFFIX:
        yield from (oracle._normal(url, text) for text in css_urls(path.read_bytes().decode("utf-8", "replace")))
    elif suffix in oracle._HTML_SUFFIXES and (data := path.read_bytes()).strip():
        document = html.document_fromstring(data, parser=oracle._parser(data))
        bases = document.xpath("//base/@href")
        base = oracle._normal(url, bases[0]) if bases else url
        yield from (oracle._normal(base, text) for text in _references(document))


def _references(document: html.HtmlElement) -> Iterator[str]:
    for element in document.iter():
        if not isinstance(element.tag, str):
            continue  # a comment
        yield from _of_element(element)
        for name in _LATE:
            yield from filter(None, [element.get(name)])
        for name in _CANDIDATES:
            yield from srcset_urls(element.get(name, ""))
        yield from css_urls(element.get("style", ""))
        if element.tag == "style":
            yield from css_urls(element.text or "")
        if element.tag == "meta" and element.get("http-equiv", "").strip().lower() == "refresh":
            yield from re.findall(
                r"""^\s*[\d.]*\s*[;,\s]\s*url\s*=\s*["']?([^"']+)""", element.get("content", ""), re.IGNORECASE
            )


def _of_element(element: html.HtmlElement) -> Iterator[str]:
    if element.tag == "link" and not oracle._counts(element.get("rel")):
        return
    for name in _ONE.get(element.tag, ()):
        text = element.get(name)
        if text is not None and (element.tag in _NAVIGATION or (text and not text.startswith("#"))):
            yield text


def srcset_urls(text: str) -> list[str]:
    """The URLs of the image candidates (HTML Standard, "parse a srcset attribute"): a comma ends one only behind a space."""
    return [url.rstrip(",") for url in re.findall(r"(?:^|,)[\s,]*(\S+[^\s,])(?:\s+[^,(]*(?:\([^)]*\)[^,(]*)*)?", text)]


def css_urls(text: str) -> list[str]:
    """The URLs of a stylesheet, in order, as they are written and unescaped."""
    found = []
    for token in _CSS_TOKEN.finditer(text):
        if token["set"] is not None:
            found += [next(filter(None, groups), "") for groups in _STRING.findall(token["set"])]
        elif (word := token["import"] or token["url"]) is not None:
            found.append(word.strip("\"'"))
    return [_ESCAPE.sub(_unescaped, url) for url in found if url and not url.startswith("#")]


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else escape[2]
