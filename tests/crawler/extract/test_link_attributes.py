"""The table of HTML's links: each attribute with its hop, how lazy loaders' values are read, and what an order adds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extract import link_attributes
from anabranch.crawler.extract.html import read_html
from anabranch.crawler.extract.link_attributes import (
    MAX_CANDIDATES,
    element_attributes,
    global_attributes,
    named_attribute,
    srcset_urls,
)
from anabranch.crawler.extract.links import ExtractOptions
from tests.rows import each_row

ROOT = Path(__file__).resolve().parents[3]
PAGE = "http://a.test/dir/page.html"


def found(body: str, **options) -> list[tuple[str, str, str]]:
    """URL below the page's folder, hop and context of each link."""
    page = read_html(body.encode(), "text/html", PAGE, ExtractOptions(**options))
    return [(link.url.removeprefix("http://a.test/dir/"), link.hop, link.context) for link in page.links]


def urls(body: str, **options) -> list[str]:
    return [url for url, _, _ in found(body, **options)]


@each_row(
    ("element", "hop", "context"),
    [
        # Of any element
        ("<body background=x>", "E", "@background"),
        ("<table background=x>", "E", "@background"),
        ("<table><tr><td background=x>", "E", "@background"),
        ("<table><tr background=x>", "E", "@background"),
        ("<table><th background=x>", "E", "@background"),
        ("<layer background=x>", "E", "@background"),
        ("<img lowsrc=x>", "E", "@lowsrc"),
        ("<input type=image lowsrc=x>", "E", "@lowsrc"),
        ("<img dynsrc=x>", "E", "@dynsrc"),
        ("<html manifest=x>", "E", "@manifest"),
        ("<embed qtsrc=x>", "E", "@qtsrc"),
        ("<img longdesc=x>", "L", "@longdesc"),
        ("<iframe longdesc=x></iframe>", "L", "@longdesc"),
        ("<blockquote cite=x>", "L", "@cite"),
        ("<q cite=x>", "L", "@cite"),
        ("<del cite=x>", "L", "@cite"),
        ("<ins cite=x>", "L", "@cite"),
        # Old and new elements
        ("<bgsound src=x>", "E", "bgsound/@src"),
        ("<layer src=x>", "E", "layer/@src"),
        ("<ilayer src=x></ilayer>", "E", "ilayer/@src"),
        ("<xml src=x></xml>", "E", "xml/@src"),
        ("<portal src=x></portal>", "E", "portal/@src"),
        ("<fencedframe src=x></fencedframe>", "E", "fencedframe/@src"),
        ("<model src=x></model>", "E", "model/@src"),
        ("<object archive=x></object>", "E", "object/@archive"),
        # Plug-ins
        ("<param name=movie value=x>", "E", "param/@value"),
        ("<object><param name=SRC value=x></object>", "E", "param/@value"),
        ("<param name=' FileName ' value=' x '>", "E", "param/@value"),
        ("<param name=url value=x>", "E", "param/@value"),
        ("<param name=source value=x>", "E", "param/@value"),
        ("<param name=any valuetype=REF value=x>", "E", "param/@value"),
        # Elements that a page defines
        ("<amp-img src=x></amp-img>", "E", "amp-img/@src"),
        ("<amp-img srcset='x 2x'></amp-img>", "E", "amp-img/@srcset"),
        ("<amp-video poster=x></amp-video>", "E", "amp-video/@poster"),
        ("<my-player data-src=x></my-player>", "E", "@data-src"),
        # SVG and MathML
        ("<svg><feImage href=x /></svg>", "E", "feimage/@href"),
        ("<svg><feImage xlink:href=x /></svg>", "E", "feimage/@xlink:href"),
        ("<svg><script href=x></script></svg>", "E", "script/@href"),
        ("<svg><script xlink:href=x></script></svg>", "E", "script/@xlink:href"),
        ("<svg><linearGradient href=x#part /></svg>", "E", "lineargradient/@href"),
        ("<svg><textPath xlink:href=x#part /></svg>", "E", "textpath/@xlink:href"),
        ("<svg><mpath href=x#part /></svg>", "E", "mpath/@href"),
        ("<svg><pattern href=x#part /></svg>", "E", "pattern/@href"),
        ("<svg><font-face-uri xlink:href=x /></svg>", "E", "font-face-uri/@xlink:href"),
        ("<svg><color-profile xlink:href=x /></svg>", "E", "color-profile/@xlink:href"),
        ("<svg><rect filter='url(x#part)' /></svg>", "E", "@filter"),
        ("<svg><g mask='url(x#part)' /></svg>", "E", "@mask"),
        ("<svg><path clip-path='url(\"x#part\")' /></svg>", "E", "@clip-path"),
        ("<svg><path marker-end='url(x#part)' /></svg>", "E", "@marker-end"),
        ("<math href=x></math>", "L", "math/@href"),
        ("<math><mrow xlink:href=x></mrow></math>", "L", "mrow/@xlink:href"),
        # Descriptions of the page
        ("<link rel=apple-touch-startup-image href=x>", "E", "link/@href"),
        ("<link rel=image_src href=x>", "E", "link/@href"),
        ("<link rel=import href=x>", "E", "link/@href"),
        ("<link itemprop=thumbnailUrl href=x>", "E", "link/@href"),
        ("<meta itemprop=image content=./x>", "E", "meta/@content"),
        ("<meta name=msapplication-TileImage content=./x>", "E", "meta/@content"),
        ("<meta name=thumbnail content=./x>", "E", "meta/@content"),
    ],
)
def test_an_attribute_of_the_table_gives_its_link(element: str, hop: str, context: str) -> None:
    """With its hop, and with the place where it stands."""
    assert [(url.partition("#")[0], *rest) for url, *rest in found(element)] == [("x", hop, context)]


@each_row(
    "element",
    [
        "<object classid=x></object>",
        "<head profile=x>",
        "<img usemap=x>",
        "<object codebase=x></object>",
        "<param name=quality value=x>",
        "<param name=movie>",
        "<div src=x>",
        "<svg><use href='#x' /></svg>",
        "<svg><g fill='url(#x)' filter='url(#x)' mask=none /></svg>",
        "<svg><linearGradient href='#x' /></svg>",
        "<my-icon icon=x></my-icon>",
        "<meta name=msapplication-config content=none>",
        "<meta itemprop=image content=42>",
        "<link itemprop=url href=x>",
        "<p style='fill: url(#x)'>",
        "<body background=''>",
        "<body background=#fff>",
    ],
)
def test_other_attributes_give_none(element: str) -> None:
    """Names, parts of the page, bases, and values that are no URL."""
    assert found(element) == []


@each_row(
    ("attribute", "expected"),
    [
        # The common lazy loaders
        ("data-src=x", ["x"]),
        ("data-srcset='x 1x, y 2x'", ["x", "y"]),
        ("data-original=x", ["x"]),
        ("data-lazy-src=x", ["x"]),
        ("data-lazy-srcset='x 1x, y 2x'", ["x", "y"]),
        ("data-full-srcset='x 1x'", ["x"]),
        ("data-lazy=x.jpg", ["x.jpg"]),
        ("data-lazyload=x.jpg", ["x.jpg"]),
        ("data-original-src=x.jpg", ["x.jpg"]),
        ("data-img-src=x.jpg", ["x.jpg"]),
        ("data-image=x.jpg", ["x.jpg"]),
        ("data-hi-res-src=x.jpg", ["x.jpg"]),
        ("data-poster=x.jpg", ["x.jpg"]),
        ("data-rocket-src=x.js", ["x.js"]),
        ("data-cfsrc=x.jpg", ["x.jpg"]),
        ("data-echo=x.jpg", ["x.jpg"]),
        ("data-ks-lazyload=x.jpg", ["x.jpg"]),
        ("data-actualsrc=x.jpg", ["x.jpg"]),
        ("data-pagespeed-lazy-src=x.jpg", ["x.jpg"]),
        ("data-flickity-lazyload=x.jpg", ["x.jpg"]),
        ("data-src-retina=x.jpg", ["x.jpg"]),
        ("data-large_image=x.jpg", ["x.jpg"]),
        ("data-zoom-image=x.jpg", ["x.jpg"]),
        ("data-thumb=x.jpg", ["x.jpg"]),
        ("data-orig-file=x.jpg", ["x.jpg"]),
        ("nitro-lazy-src=x.jpg", ["x.jpg"]),
        ("zoomfile=x.jpg", ["x.jpg"]),
        ("file=x.jpg", ["x.jpg"]),
        ("_src=x.jpg", ["x.jpg"]),
        ("real_src=x.jpg", ["x.jpg"]),
        # Backgrounds: a URL, or CSS
        ("data-bg=./x", ["x"]),
        ("data-bg='url(x)'", ["x"]),
        ("data-bg=\"url('x'), url(y)\"", ["x", "y"]),
        ("data-bg=\"url('x') no-repeat\"", ["x"]),
        ("data-bg='linear-gradient(red, blue), url(x)'", ["x"]),
        ("data-background-image=x.jpg", ["x.jpg"]),
        ("data-background=//b.test/x", ["http://b.test/x"]),
        ("data-bg-multi=\"url('x'), linear-gradient(red)\"", ["x"]),
        ("data-lazy-background=x.webp?v=1", ["x.webp?v=1"]),
        ("data-bgset='x.jpg 1x [(max-width: 9px)] | y.jpg 2x'", ["x.jpg", "y.jpg"]),
        ("data-setbg=x.jpg", ["x.jpg"]),
        ("data-splide-lazy=x.jpg", ["x.jpg"]),
        ("data-splide-lazy-srcset='x.jpg 1x, y.jpg 2x'", ["x.jpg", "y.jpg"]),
        ("data-exthumbimage=x.jpg", ["x.jpg"]),
        ("data-slide-bg=true", []),
        ("data-background-image-set='x.jpg 1x, y.jpg 2x'", ["x.jpg", "y.jpg"]),
        ("data-bg-set=\"image-set('x' 1x, url(y) 2x)\"", ["x", "y"]),
        # Several URLs in one value
        ("data-src='x.jpg, y.jpg'", ["x.jpg", "y.jpg"]),
        ("data-src='http://b.test/x,http://b.test/y'", ["http://b.test/x", "http://b.test/y"]),
        ("data-interchange='[x.jpg, small], [y.jpg, (min-width: 9px)]'", ["x.jpg", "y.jpg"]),
        ('data-responsive=\'{"9": "x.jpg", "99": "y.jpg"}\'', ["x.jpg", "y.jpg"]),
        ("data-sources=\"['x.mp4', 'y.webm']\"", ["x.mp4", "y.webm"]),
        (r"""data-image='{"url": "\/dir\/x.jpg", "width": 9}'""", ["x.jpg"]),
        ("data-src='[\"x.jpg\"]'", ["x.jpg"]),
        # Other meanings of the same names
        ("data-lazy=true", []),
        ("data-lazyload=1", []),
        ("data-bg=dark", []),
        ("data-bg=#fff", []),
        ("data-bg='rgba(0, 0, 0, .5)'", []),
        ("data-bg=transparent", []),
        ("data-background=42", []),
        ("data-image=16/9", []),
        ("data-thumb='A nice picture'", []),
        ("data-image=image/jpeg", []),
        ("data-original=", []),
        ("data-src='#x'", []),
        ("data-src=data:,x", []),
        ("data-srcset='data:image/gif;base64,AA 1x'", []),
        ("data-bg='url(data:,x)'", []),
        ("data-href=x.html", []),
        ("data-url=x.html", []),
    ],
)
def test_each_form_of_a_lazy_loaders_value_is_read(attribute: str, expected: list[str]) -> None:
    """On any element, all are embedded, and only what looks like a URL is one where scripts keep other things, too."""
    assert found(f"<div {attribute}>") == [(url, "E", f"@{re.split('[= ]', attribute)[0]}") for url in expected]


def test_without_data_attributes_the_old_ones_stay() -> None:
    """They are HTML's own."""
    assert urls("<body background=1 data-bg=2.png file=3.png>", data_attributes=False) == ["1"]


def test_candidates_of_an_attribute_are_bounded() -> None:
    """In one attribute a site could name a million."""
    many = ",".join(f"{number}.jpg 1x" for number in range(MAX_CANDIDATES + 5))
    assert len(urls(f"<img srcset='{many}'>")) == MAX_CANDIDATES
    assert len(urls(f"<p data-srcset='{many}'>")) == MAX_CANDIDATES
    assert len(urls(f"<p data-image='[{many}]'>")) == MAX_CANDIDATES


class TestOrder:
    @each_row(
        ("text", "expected"),
        [
            ("data-zoom", ("", "data-zoom")),
            ("@data-zoom", ("", "data-zoom")),
            ("IMG/@Data-Zoom", ("img", "data-zoom")),
            ("my-element/@v-lazy", ("my-element", "v-lazy")),
            (":src", ("", ":src")),
            ("a b", None),
            ("img@x", None),
            ("img/x", None),
            ("<p>", None),
            ("", None),
            ("x" * 65, None),
        ],
    )
    def test_an_attribute_is_named_as_in_the_log(self, text: str, expected: tuple[str, str] | None) -> None:
        """With its element, or for all."""
        assert named_attribute(text) == expected

    def test_an_order_adds_attributes(self) -> None:
        """They count for all elements or for one, as parts of the page or as links; those of the table stay."""
        body = (
            "<div data-zoom=1><span v-lazy=2><p v-lazy=no><a href=3 data-more=4><tr-x data-url=5></tr-x>"
            "<img src=6 data-zoom='7 1x, 8 2x'><img data-zoom='url(9)'>"
        )
        options = {
            "embed_attributes": ("data-zoom", "span/@v-lazy", "tr-x/@data-url"),
            "link_attributes": ("a/@data-more",),
        }
        assert found(body, **options) == [
            ("1", "E", "@data-zoom"),
            ("2", "E", "span/@v-lazy"),
            ("3", "L", "a/@href"),
            ("4", "L", "a/@data-more"),
            ("5", "E", "tr-x/@data-url"),
            ("6", "E", "img/@src"),
            ("7", "E", "@data-zoom"),
            ("8", "E", "@data-zoom"),
            ("9", "E", "@data-zoom"),
        ]

    def test_the_orders_own_are_read_without_data_attributes_too(self) -> None:
        """They were asked for by name."""
        assert urls("<p data-src=1 data-zoom=2>", data_attributes=False, link_attributes=("data-zoom",)) == ["2"]


class TestSpeculative:
    @each_row(
        ("element", "expected"),
        [
            ("<p onclick=\"location.href='/x'\">", [("@onclick", "/x")]),
            ("<table><tr ONCLICK='window.open(&quot;x.html&quot;)'>", [("@onclick", "x.html")]),
            ("<body onload=\"go('/x')\">", [("@onload", "/x")]),
            ("<a onmouseover=\"swap('x.gif')\" href=y>", [("a/@href", "y"), ("@onmouseover", "x.gif")]),
            ("<a href=\"javascript:window.open('/x')\">", [("script", "/x")]),
            ("<a href=' JavaScript:go(&quot;x.html&quot;)'>", [("script", "x.html")]),
            ("<a href=javascript:go(%27/x%27)>", [("script", "/x")]),
            ("<area href=\"javascript:go('/x')\">", [("script", "/x")]),
            ("<iframe src=\"javascript:go('/x')\"></iframe>", [("script", "/x")]),
            ("<form action=\"javascript:go('/x')\"></form>", [("script", "/x")]),
            ("<option value=/x>", [("@value", "/x")]),
            ("<input type=hidden value=http://b.test/x>", [("@value", "http://b.test/x")]),
            ("<option value=42>", []),
            ("<meta name=any content=http://b.test/x>", [("@content", "http://b.test/x")]),
            ("<meta name=description content='Any text.'>", []),
            ("<param name=FlashVars value='a=1&amp;file=%2Fx'>", [("param/@value", "/x")]),
            ("<embed flashvars='file=x.flv&amp;autostart=1'>", [("@flashvars", "x.flv")]),
            ("<svg><script>'/x'</script></svg>", [("script", "/x")]),
            ("<p title=\"'/x'\">", []),
        ],
    )
    def test_scripts_in_attributes_are_guessed_at(self, element: str, expected: list[tuple[str, str]]) -> None:
        """Handlers, `javascript:` URLs and values, with the hop of guesses; nothing of it without `speculative`."""
        links = found(element, speculative=True)
        assert [(context, url.removeprefix("http://a.test")) for url, _, context in links] == expected
        assert all(hop == "X" for _, hop, context in links if context != "a/@href")
        assert [context for _, _, context in found(element)] == [
            context for context, _ in expected if context == "a/@href"
        ]


def test_the_reference_names_all_of_the_table() -> None:
    """Each attribute, each element: docs/reference/links.md is complete."""
    text = (ROOT / "docs" / "reference" / "links.md").read_text()
    words = set(re.findall(r"[\w:.-]+", text))
    options = ExtractOptions()
    names = {name for rows in element_attributes(options).values() for name, _, _ in rows} | set(
        global_attributes(options)
    )
    assert names | set(element_attributes(options)) <= words


def test_heritrix_list_is_read() -> None:
    """ExtractorHTML's attributes of later images, and its old ones."""
    late = "src src-small src-medium srcset original original-set lazy lazy-src lazy-srcset full-src full-srcset"
    names = {f"data-{name}" for name in late.split()} | {"lowsrc", "background", "longdesc", "cite"}
    assert names <= set(global_attributes(ExtractOptions()))


def test_no_attribute_is_listed_twice() -> None:
    """A second entry would hide the first."""
    lists = (link_attributes._LATE, link_attributes._LATE_SETS, link_attributes._LATE_IF_LIKELY)
    names = " ".join(lists).split()
    assert sorted(names) == sorted(set(names))


SPACE = "\t\n\f\r "


def by_the_letter(text: str) -> list[str]:
    """The standard's steps, one character at a time, descriptors unjudged."""
    urls, position = [], 0
    while True:
        while position < len(text) and text[position] in SPACE + ",":
            position += 1
        if position == len(text):
            return urls
        start = position
        while position < len(text) and text[position] not in SPACE:
            position += 1
        url = text[start:position]
        if url.endswith(","):
            urls.append(url.rstrip(","))
            continue
        urls.append(url)
        in_parens = False
        while position < len(text):
            character = text[position]
            position += 1
            if in_parens:
                in_parens = character != ")"
            elif character == ",":
                break
            else:
                in_parens = character == "("


@each_row(
    ("text", "urls"),
    [
        ("a", ["a"]),
        ("a 1x, b 2x", ["a", "b"]),
        ("a,b 2x", ["a,b"]),
        ("a, b", ["a", "b"]),
        ("data:image/png;base64,AAA= 1x, b", ["data:image/png;base64,AAA=", "b"]),
        ("a (x, y) 1x, b", ["a", "b"]),
        (" ,, a ,,b", ["a", "b"]),
        ("a,,, b", ["a", "b"]),
        ("", []),
        (" , ", []),
    ],
)
def test_commas_part_candidates_only_where_they_may(text, urls) -> None:
    """Not inside a URL, not inside parentheses."""
    assert list(srcset_urls(text)) == urls


@given(st.text(alphabet="ab, (),\t\n1x\u00a0", max_size=60))
def test_a_srcset_is_read_by_the_algorithm_of_the_standard(text) -> None:
    """On any text whatever."""
    assert list(srcset_urls(text)) == by_the_letter(text)


@pytest.mark.parametrize("piece", [",", "a,", "(", "a (", "a ,", "a 1x,", ",,a"])
def test_a_megabyte_is_read_once(piece) -> None:
    """No comma is looked at twice (else this test does not end)."""
    assert all(srcset_urls(piece * (250_000 // len(piece))))
