"""Finds the URLs that a complete crawl of a tree of real documents must fetch, stylesheets and images included.

It uses no code of the crawler: lxml reads HTML, urllib joins URLs, and this module reads CSS and srcset. The conventions are
those of the project: embeds of all kinds, `srcset`, `data-src`, meta refresh, styles inline and linked; no forms, no scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from lxml import html  # type: ignore[import-untyped]  # lxml ships no types

CSS_SUFFIX = ".css"
_IGNORED_RELS = {"pingback", "dns-prefetch", "preconnect"}
_HTML_SUFFIXES = {".html", ".htm", ".xhtml", ".xht"}
_PATH_SAFE = "/:@!$&'()*+,;=-._~%|[]\\^"
_QUERY_SAFE = _PATH_SAFE + "?{}`"

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

    `start` is the first URL's path below `base_url` (a folder URL that ends in "/"). The first `base[href]` of a page counts;
    `link` counts by its rel. Scope is the host and port of `base_url`. A URL counts if its path is an existing file or a folder
    (with "/") that holds an index.html; queries make URLs of their own.

    Limits: only files named .html, .htm, .xhtml, .xht or .css are read; what stands in SVG files and in scripts is not. URLs
    are joined by RFC 3986, not by the URL standard: backslashes, "%2e" and upper-case hosts in links are not understood. lxml
    reads HTML as libxml2 does: the content of `template` counts as links, and text is UTF-8, or else Latin-1.
    """
    first = _normal(base_url, start)
    todo, found, seen = [first], set(), {first}
    while todo:
        url = todo.pop()
        path = _file_of(root, url, base_url)
        if path is not None and path.is_file():
            found.add(url)
            targets = list(_targets(path, url))
        else:
            targets = [_with_slash(url)] if path is not None and path.is_dir() else []
        fresh = {target for target in targets if _origin(target) == _origin(base_url)} - seen
        seen |= fresh
        todo += sorted(fresh)
    return found


def _file_of(root: Path, url: str, base_url: str) -> Path | None:
    """The file that a static server answers with; a folder stands for a redirect; None = nothing."""
    below = urlsplit(base_url).path.rstrip("/") + "/"
    path = urlsplit(url).path
    if not path.startswith(below):
        return None
    wanted = root / unquote(path.removeprefix(below))
    return wanted / "index.html" if path.endswith("/") else wanted


def _with_slash(url: str) -> str:
    return urlsplit(url)._replace(path=urlsplit(url).path + "/", query="").geturl()


def _origin(url: str) -> tuple[str, str]:
    return urlsplit(url)[:2]


def _normal(base: str, raw: str) -> str:
    """The absolute URL without its fragment; "" if it is none."""
    text = raw.strip(" \t\n\r\f").replace("\t", "").replace("\n", "").replace("\r", "")
    try:
        parts = urlsplit(urljoin(base, text))
    except ValueError:
        return ""
    path = quote(parts.path or "/", safe=_PATH_SAFE)
    return urlunsplit((parts.scheme, parts.netloc, path, quote(parts.query, safe=_QUERY_SAFE), ""))


def _targets(path: Path, url: str) -> Iterator[str]:
    suffix = path.suffix.lower()
    if suffix == CSS_SUFFIX:
        yield from (_normal(url, text) for text in css_urls(path.read_bytes().decode("utf-8", "replace")))
    elif suffix in _HTML_SUFFIXES and (data := path.read_bytes()).strip():
        document = html.document_fromstring(data, parser=_parser(data))
        bases = document.xpath("//base/@href")
        base = _normal(url, bases[0]) if bases else url
        yield from (_normal(base, text) for text in _references(document))


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
    if element.tag == "link" and not _counts(element.get("rel")):
        return
    for name in _ONE.get(element.tag, ()):
        text = element.get(name)
        if text is not None and (element.tag in _NAVIGATION or (text and not text.startswith("#"))):
            yield text


def _parser(data: bytes) -> html.HTMLParser:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return html.HTMLParser(encoding="iso-8859-1", huge_tree=True)
    return html.HTMLParser(encoding="utf-8", huge_tree=True)


def _counts(rel: str | None) -> bool:
    """Heritrix's rule for `link`: no rel = no link; three rels name no page."""
    words = (rel or "").lower().split()
    return bool(words) and _IGNORED_RELS.isdisjoint(words)


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
