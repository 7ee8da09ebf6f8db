"""Links out of HTML: which elements, which base, which encoding, and what no body can do to the crawler."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.crawler.extract import html
from anabranch.crawler.extract.html import MOST_TREE_BYTES, parsed, read_html
from anabranch.crawler.extract.links import NOFOLLOW_MARK, ExtractOptions, Found, Link
from anabranch.crawler.extract.resolver import LinkResolver
from tests.rows import each_row

PAGE = "http://a.test/dir/page.html?q=1"
HTML = "text/html"


def links(body: str | bytes, content_type: str = HTML) -> list[tuple[str, str]]:
    return [(link.url.removeprefix("http://a.test"), link.hop) for link in found(body, content_type).links]


def found(body: str | bytes, content_type: str = HTML, **options) -> Found:
    data = body.encode() if isinstance(body, str) else body
    return read_html(data, content_type, PAGE, ExtractOptions(**options))


def contexts(body: str, **options) -> list[tuple[str, str, str]]:
    return [
        (link.url.removeprefix("http://a.test/dir/"), link.hop, link.context) for link in found(body, **options).links
    ]


@pytest.mark.parametrize("rest", [b"p" * (1 << 20), b"<p>hello</p>" * 100_000], ids=["text", "elements"])
def test_a_long_document_has_its_whole_tree(rest: bytes) -> None:
    """The pieces in which its links are read have no text and no title."""
    tree = parsed(b"<title>ok</title>" + rest + b"<a href=/z>z</a>", HTML)
    assert [node.text() for node in tree.css("title, a")] == ["ok", "z"]
    assert tree.body is not None
    assert len(tree.body.text()) == len(rest.replace(b"<p>", b"").replace(b"</p>", b"")) + 1


def test_a_flattened_tree_has_the_title_and_all_links() -> None:
    """Its document may be nested beyond reason, however long it is."""
    tree = parsed(b"<title>ok</title>" + b"<div><a href=/z>" * 100_000, HTML)
    assert [node.text() for node in tree.css("title")] == ["ok"]
    assert len(tree.css("a")) == 100_000
    assert tree.css_first("div") is None


def test_the_tree_of_a_document_is_bounded() -> None:
    """It has the beginning: memory would be a hundred times the bytes that a site sends."""
    tree = parsed(b"<title>ok</title>" + b"p" * MOST_TREE_BYTES + b"<a href=/z>", HTML)
    assert [node.tag for node in tree.css("title, a")] == ["title"]


@each_row(
    ("element", "hop"),
    [
        ("<a href=x>", "L"),
        ("<map><area href=x></map>", "L"),
        ("<iframe src=x></iframe>", "E"),
        ("<frameset><frame src=x></frameset>", "E"),
        ("<img src=x>", "E"),
        ("<image src=x>", "E"),
        ("<script src=x></script>", "E"),
        ("<link rel=stylesheet href=x>", "E"),
        ("<link rel=next href=x>", "L"),
        ("<svg><a href=x></a></svg>", "L"),
        ("<svg><a xlink:href=x></a></svg>", "L"),
        ("<svg><image href=x /></svg>", "E"),
        ("<svg><image xlink:href=x /></svg>", "E"),
        ("<svg><use href=x#part /></svg>", "E"),
        ("<svg><feImage href=x /></svg>", "E"),
        ("<svg><filter><feImage xlink:href=x /></filter></svg>", "E"),
        ("<svg><script href=x></script></svg>", "E"),
        ("<svg><script xlink:href=x /></svg>", "E"),
        ("<math><mi href=x>y</mi></math>", "L"),
        ("<math><mrow xlink:href=x></mrow></math>", "L"),
        ("<math><mtext><a href=x>y</a></mtext></math>", "L"),
        ("<math><mi><mglyph src=x></mi></math>", "E"),
        ("<svg><use xlink:href=x#part /></svg>", "E"),
        ("<video src=x></video>", "E"),
        ("<video poster=x></video>", "E"),
        ("<audio src=x></audio>", "E"),
        ("<video><source src=x></video>", "E"),
        ("<video><track src=x></video>", "E"),
        ("<embed src=x>", "E"),
        ("<input type=image src=x>", "E"),
        ("<img srcset='x 2x'>", "E"),
        ("<picture><source srcset=x></picture>", "E"),
        ("<link rel=preload imagesrcset='x 1x'>", "E"),
        ("<object data=x></object>", "E"),
        ("<object codebase=/dir/ data=x></object>", "E"),
        ("<applet archive=x></applet>", "E"),
        ("<applet code=x></applet>", "E"),
        ("<p style='background: url(x)'>", "E"),
        ("<style>p { background: url(x) }</style>", "E"),
        ("<svg><style>p { background: url(x) }</style></svg>", "E"),
        ("<meta http-equiv=Refresh content='0; url=x'>", "R"),
        ("<meta property=og:image content=x>", "E"),
        ("<meta property='OG:Video:Secure_URL' content=' x '>", "E"),
        ("<meta property='twitter:x og:audio' content=x>", "E"),
        ("<meta name=twitter:image content=x>", "E"),
        ("<p data-src=x>", "E"),
        ("<img DATA-SRCSET='x 2x'>", "E"),
        ("<noscript><a href=x></a></noscript>", "L"),
        ("<A HREF=x>", "L"),
    ],
)
def test_each_element_gives_its_link(element: str, hop: str) -> None:
    """Each element that is read gives its link with its hop."""
    assert links(element) == [("/dir/x", hop)]


@each_row(
    "element",
    [
        "<p href=x>",
        "<a src=x>",
        "<map><area xlink:href=x></map>",
        "<img href=x>",
        "<form action=x>",
        "<script>'/x.html'</script>",
        "<svg><use href=#part /></svg>",
        "<img src=#part>",
        "<meta name=refresh content='0; url=x'>",
        "<meta property=og:url content=x>",
        "<p style='color: red'>",
        "<applet codebase='//[' archive=x></applet>",
    ],
)
def test_other_elements_give_none(element: str) -> None:
    """Nothing else is a link here."""
    assert links(element) == []


@each_row(
    ("rel", "hop"),
    [
        ("icon", "E"),
        ("Shortcut ICON", "E"),
        ("stylesheet", "E"),
        ("modulepreload", "E"),
        ("prefetch", "E"),
        ("prerender", "E"),
        ("canonical", "L"),
        ("alternate stylesheet", "E"),
        ("preconnect next", "L"),
        ("dns-prefetch", None),
        ("preconnect", None),
        ("pingback", None),
        ("icon pingback", "E"),
        ("pingback icon", None),
        ("next pingback", None),
        ("", None),
    ],
)
def test_rel_decides_what_a_link_element_is(rel: str, hop: str | None) -> None:
    """Heritrix's rule, keyword by keyword: what renders is embedded, hints are nothing, the rest is navigation."""
    assert links(f"<link rel='{rel}' href=x>") == ([("/dir/x", hop)] if hop else [])


def test_a_link_element_without_rel_is_nothing() -> None:
    """No rel, no link (Heritrix)."""
    assert links("<link href=x>") == []


def test_an_empty_src_is_never_fetched_and_an_empty_href_is_the_page() -> None:
    """The standard fetches nothing for an empty `src`; an empty `href` leads to the page itself."""
    assert links("<img src=''><script src=''></script>") == []
    assert links("<a href=''>") == [("/dir/page.html?q=1", "L")]


def test_links_come_in_document_order_each_once() -> None:
    """The order is the document's, over all elements; spellings of one URL are one link, with the hop of the first."""
    body = "<img src=2><a href=1><script src=3></script><a href='2#f'><a href='./1'><a href=/dir/4>"
    assert links(body) == [("/dir/2", "E"), ("/dir/1", "L"), ("/dir/3", "E"), ("/dir/4", "L")]


def test_the_cap_keeps_the_first_and_counts_the_rest() -> None:
    """At most `max_outlinks` unique links are kept; the number of the others is told."""
    body = b"".join(b"<a href=%d><a href=%d>" % (number, number) for number in range(10))
    few = found(body, max_outlinks=4)
    assert [link.url[-1] for link in few.links] == ["0", "1", "2", "3"]
    assert few.dropped == 6
    assert found(body, max_outlinks=10).dropped == 0


def test_a_context_says_where_a_link_stands() -> None:
    """Element and attribute, as Heritrix writes them; and whether the page asks robots not to follow it."""
    body = "<a href=1 rel='x NoFollow'><img src=2 srcset=3><svg><use xlink:href=4></svg><i data-src=5 style='a:url(6)'>"
    assert contexts(body) == [
        ("1", "L", "a/@href rel=nofollow"),
        ("2", "E", "img/@src"),
        ("3", "E", "img/@srcset"),
        ("4", "E", "use/@xlink:href"),
        ("6", "E", "css"),
        ("5", "E", "@data-src"),
    ]
    assert [link.context.endswith(NOFOLLOW_MARK) for link in found(body).links[:2]] == [True, False]


class TestOptions:
    def test_css_can_be_left_out(self) -> None:
        """Neither `<style>` nor `style` attributes are read."""
        body = "<style>a{b:url(1)}</style><p style='a:url(2)'><a href=3>"
        assert contexts(body, css=False) == [("3", "L", "a/@href")]

    def test_data_attributes_can_be_left_out(self) -> None:
        """Scripts may mean something else by them."""
        assert contexts("<img src=1 data-src=2>", data_attributes=False) == [("1", "E", "img/@src")]

    @each_row(
        ("form", "expected"),
        [
            ("<form action=x>", [("x", "S", "form/@action")]),
            ("<form action=x method=GET>", [("x", "S", "form/@action")]),
            ("<form action=x method=Post>", []),
            ("<form action=x method=dialog>", []),
            ("<form>", []),
        ],
    )
    def test_only_forms_sent_by_get_are_links_if_any(self, form, expected) -> None:
        """POST changes things."""
        assert contexts(form, forms=True) == expected

    def test_scripts_are_guessed_at_if_asked_for(self) -> None:
        """A script of its own file is read when it is fetched."""
        body = "<script>var a = '/1.html'</script><script src=2>'/3.html'</script>"
        assert [link.hop for link in found(body, speculative=True).links] == ["X", "E"]

    def test_links_with_nofollow_can_be_left_out(self) -> None:
        """The others stay."""
        assert contexts("<a href=1 rel=nofollow><a href=2>", nofollow_links=True) == [("2", "L", "a/@href")]


class TestRobots:
    def test_robots_meta_elements_are_returned(self) -> None:
        """To all robots, and to this one by its name; as it is written."""
        body = "<meta name=Robots content='Index, NOFOLLOW'><meta name=other content=none><meta name=anabranch content=all>"
        assert found(body).robots == ("Index, NOFOLLOW", "all")
        assert found(body, robot="other").robots == ("Index, NOFOLLOW", "none")

    def test_robots_meta_elements_are_bounded(self) -> None:
        """A page may have a million."""
        assert [len(text) for text in found(f"<meta name=robots content='{'x' * 5000}'>" * 20).robots] == [1000] * 16

    @pytest.mark.parametrize(
        ("content", "expected"),
        [("nofollow", True), ("noindex , None", True), ("index,follow", False), ("nofollows", False)],
    )
    def test_nofollow_and_none_close_the_page(self, content, expected) -> None:
        """Its links are told all the same: the caller decides."""
        page = found(f"<meta name=robots content='{content}'><a href=x>")
        assert (page.nofollow, len(page.links)) == (expected, 1)


@each_row(
    ("body", "expected"),
    [
        ("<link rel=canonical href=/c>", "http://a.test/c"),
        ("<meta property=og:url content=/o>", "http://a.test/o"),
        ("<meta property=og:url content=/o><link rel='x Canonical' href=/c>", "http://a.test/c"),
        ("<link rel=canonical href=mailto:x>", None),
        ("<p>", None),
    ],
)
def test_a_page_may_say_what_its_own_url_is(body, expected) -> None:
    """`rel=canonical` before `og:url`: a hint."""
    assert found(body).canonical == expected


class TestBase:
    @each_row(
        ("base", "expected"),
        [
            ("http://b.test/c/", "http://b.test/c/x"),
            ("../up/", "/up/x"),
            ("//b.test", "http://b.test/x"),
            ("", "/dir/x"),
            ("?other", "/dir/x"),
            ("javascript:void(0)", "/dir/x"),
            ("data:,x", "/dir/x"),
            ("http://", "/dir/x"),
        ],
    )
    def test_the_base_is_resolved_against_the_page(self, base: str, expected: str) -> None:
        """A base may be relative; one that is no http(s) URL is as if it were not there."""
        assert links(f"<base href='{base}'><a href=x>") == [(expected, "L")]

    def test_the_first_base_with_href_counts(self) -> None:
        """A base without href is passed over; later ones do not count, not even after a bad first one."""
        assert links("<base target=t><base href=/1/><base href=/2/><a href=x>") == [("/1/x", "L")]
        assert links("<base href=data:,><base href=/2/><a href=x>") == [("/dir/x", "L")]

    def test_the_base_counts_for_links_before_it_too(self) -> None:
        """The base belongs to the document, not to what follows it."""
        assert links("<a href=x><base href=/1/>") == [("/1/x", "L")]

    def test_a_base_inside_a_template_means_nothing(self) -> None:
        """The content of a template is another document."""
        assert links("<template><base href=/1/></template><a href=x>") == [("/dir/x", "L")]


def test_templates_are_read_after_the_document() -> None:
    """Also templates in templates, in document order."""
    body = "<template><a href=2><template><a href=3></template></template><template><a href=4></template><a href=1>"
    assert [url for url, _ in links(body)] == ["/dir/1", "/dir/2", "/dir/3", "/dir/4"]


class TestInnerDocuments:
    @each_row(
        ("body", "expected"),
        [
            ("<iframe srcdoc=\"<a href=1>&lt;img src='2'>\"></iframe>", [("/dir/1", "L"), ("/dir/2", "E")]),
            ("<iframe srcdoc='<base href=/s/><a href=1>'></iframe><a href=2>", [("/dir/2", "L"), ("/s/1", "L")]),
            ("<base href=/b/><iframe srcdoc='<a href=1>'></iframe>", [("/b/1", "L")]),
            ("<iframe srcdoc='<a href=1>'></iframe><base href=/b/>", [("/b/1", "L")]),
            ("<base href=/b/><iframe srcdoc='<base href=s/><a href=1>'></iframe>", [("/b/s/1", "L")]),
            ("<iframe srcdoc='<base href=javascript:x><a href=1>'></iframe>", [("/dir/1", "L")]),
            ("<iframe src=1 srcdoc='<img src=2>'></iframe>", [("/dir/1", "E"), ("/dir/2", "E")]),
            (
                "<iframe srcdoc='<style>a{b:url(1)}</style><p style=b:url(2)>'></iframe>",
                [("/dir/1", "E"), ("/dir/2", "E")],
            ),
            (
                "<iframe srcdoc=\"<base href=/s/><iframe srcdoc='<base href=t/><a href=1>'></iframe><a href=2>\">",
                [("/s/2", "L"), ("/s/t/1", "L")],
            ),
            ("<template><iframe srcdoc='<a href=1>'></iframe></template>", [("/dir/1", "L")]),
            ("<iframe>your browser has <a href=1>no frames</a></iframe>", [("/dir/1", "L")]),
            ("<noframes><body background=1><a href=2></noframes>", [("/dir/1", "E"), ("/dir/2", "L")]),
            ("<frameset><frame src=1><noframes><a href=2></noframes></frameset>", [("/dir/1", "E"), ("/dir/2", "L")]),
            ("<noembed><img src=1></noembed>", [("/dir/1", "E")]),
            ("<noframes><base href=/n/><a href=1></noframes><a href=2>", [("/dir/2", "L"), ("/dir/1", "L")]),
            ("<!--[if IE]><link rel=stylesheet href=1><![endif]-->", [("/dir/1", "E")]),
            ("<!--[if lt IE 9]><script src=1></script><![endif]--><html><p></html>", [("/dir/1", "E")]),
            ("<html><body></body></html><!--[IF IE]><img src=1><![endif]-->", [("/dir/1", "E")]),
            ("<p><!--[if IE]><base href=/c/><a href=1><![endif]--><a href=2>", [("/dir/2", "L"), ("/dir/1", "L")]),
            ("<!--[if !IE]><!--><img src=1><!--<![endif]-->", [("/dir/1", "E")]),
            ("<![if !IE]><img src=1><![endif]>", [("/dir/1", "E")]),
            ("<!-- <a href=no> --><!--if IE]><a href=no>-->", []),
            ("<textarea><a href=no></textarea><title><a href=no></title><xmp><a href=no></xmp>", []),
        ],
    )
    def test_a_document_inside_gives_its_links(self, body: str, expected: list[tuple[str, str]]) -> None:
        """After those of the page. Only the `base` of a `srcdoc` counts, and for itself alone."""
        assert links(body) == expected

    def test_robots_and_the_own_url_are_the_pages(self) -> None:
        """A document inside says nothing about the page."""
        page = found("<iframe srcdoc='<meta name=robots content=none><link rel=canonical href=/x>'></iframe>")
        assert (page.robots, page.nofollow, page.canonical) == ((), False, None)

    def test_they_are_bounded(self) -> None:
        """So many, so deep: a site cannot have a tree built for each of a million frames."""
        many = "".join(f"<iframe srcdoc='<a href={number}>'></iframe>" for number in range(html.MAX_INNER + 5))
        page = found(many)
        assert (len(page.links), page.dropped) == (html.MAX_INNER, 5)
        inner = "<a href=x>"
        for _ in range(html.MAX_INNER_DEPTH):
            inner = '<iframe srcdoc="' + inner.replace("&", "&amp;").replace('"', "&quot;") + '"></iframe>'
        assert links(inner) == [("/dir/x", "L")]
        page = found(inner.replace("<a", "<noframes><a"))
        assert (page.links, page.dropped) == ([], 1)

    @pytest.mark.parametrize(
        "piece", ["<iframe srcdoc='", "<noframes>", "<!--[if IE]><a href=x>", "<iframe>href=", "&lt;a href=x>"]
    )
    def test_a_bomb_inside_is_read_like_any_page(self, piece: str) -> None:
        """It is flattened, too (else this test does not end)."""
        assert len(links('<iframe srcdoc="<a href=1></a>' + piece * 20_000 + '"></iframe>')) <= 2

    def test_they_are_nested_together_no_deeper_than_one_may_be(self) -> None:
        """Elements that are opened again cost 10 ms a document; of a flattened one the links of its own elements are lost."""
        nested = "".join(f"<b id={number}><p>" for number in range(220)) + "<x-y src=1></x-y><a href=2>"
        frame = f"<iframe srcdoc='{nested.replace('<', '&lt;')}'></iframe>"
        assert [context for _, _, context in found(frame).links] == ["x-y/@src", "a/@href"]
        others = "".join(
            frame.replace("src=1", f"src=1{number}").replace("href=2", f"href=2{number}") for number in range(9)
        )
        assert Counter(context for _, _, context in found(others).links) == {"x-y/@src": 1, "a/@href": 9}

    @pytest.mark.parametrize("bare", [f"{'on' * 1000} ", "src" * 600, "style-" * 300])
    @pytest.mark.parametrize("quoted", ["src" * 100_000, "x" * 100_000, "lazy=" * 60_000])
    def test_the_attributes_of_a_flattened_document_are_searched_once(self, bare: str, quoted: str) -> None:
        """Each name may mark a link, and none is looked at from each of its letters (else this test does not end)."""
        body = "<i>" * 600 + f"<q {bare} x='{quoted}'><q data-src=2>" * 3
        assert [url for url, _ in links(body)] == ["/dir/2"]

    def test_a_long_base_inside_makes_no_long_list(self) -> None:
        """Links that a base makes long are bounded as in the page."""
        body = f"<iframe srcdoc='<base href=/{'x' * 8000}/>{''.join(f'<a href={n}>' for n in range(3000))}'></iframe>"
        assert sum(len(link.url) for link in found(body).links) < 6000 * 256 + 256 * 8100


def test_comments_have_the_number_that_the_walk_asks_for() -> None:
    """It is lexbor's own, and no function tells it."""
    root = parsed(b"<html><!-- x -->", HTML).root
    assert root is not None
    assert [node.tag_id for node in root.traverse() if node.is_comment_node] == [html._COMMENT_NUMBER]


class TestEncoding:
    LINK = "<a href='/中'>"
    EXPECTED: ClassVar = [("/%E4%B8%AD", "L")]

    @each_row("charset", ["utf-8", "GBK", "gb2312", "big5", "Shift_JIS", "euc-jp", "utf-16be", "utf-16"])
    def test_the_header_names_the_encoding(self, charset: str) -> None:
        """Paths are percent-encoded UTF-8 whatever the encoding of the page."""
        codec = "utf-16-le" if charset == "utf-16" else charset
        assert links(self.LINK.encode(codec), f'text/html; charset="{charset}"') == self.EXPECTED

    @pytest.mark.parametrize(
        "meta",
        [
            "<meta charset=gbk>",
            "<META content='text/html; charset=GB2312' http-equiv=content-type>",
            '<!-- <meta charset=big5> --><meta/charset = "gbk"/>',
        ],
    )
    def test_meta_names_it_when_the_header_does_not(self, meta: str) -> None:
        """Without a charset in the header, the first `meta` is asked that is no comment."""
        assert links((meta + self.LINK).encode("gbk")) == self.EXPECTED

    @pytest.mark.parametrize(
        "start", ["<meta charset=utf-16>", " " * (1 << 20) + "<meta charset=gbk>", "<p charset=gbk>"]
    )
    def test_a_meta_that_cannot_be_right_is_passed_over(self, start: str) -> None:
        """A `meta` that is readable is not in UTF-16; one after 1 MiB comes too late."""
        assert links(start + self.LINK) == self.EXPECTED

    def test_the_header_wins_over_meta(self) -> None:
        """HTML Standard: transport before content."""
        assert links(f"<meta charset=gbk>{self.LINK}", "text/html;charset=utf-8") == self.EXPECTED

    @pytest.mark.parametrize(("bom", "codec"), [("\ufeff", "utf-8"), ("\ufeff", "utf-16-le"), ("\ufeff", "utf-16-be")])
    def test_a_byte_order_mark_wins_over_all(self, bom: str, codec: str) -> None:
        """HTML Standard: a byte order mark before the header."""
        assert links((bom + self.LINK).encode(codec), "text/html; charset=windows-1251") == self.EXPECTED

    def test_latin1_means_windows_1252(self) -> None:
        """Encoding Standard: 0x80 of a page labelled iso-8859-1 is the euro sign."""
        assert links(b"<a href='/\x80'>", "text/html; charset=ISO-8859-1") == [("/%E2%82%AC", "L")]

    @each_row("label", ["nonsense", "base64", "rot13", "punycode", "idna", "undefined", "\x00", "'", "é" * 9999])
    def test_an_unknown_label_is_passed_over(self, label: str) -> None:
        """A label that names no encoding of the web counts as none, in the header and in `meta`."""
        assert links(self.LINK, f"text/html; charset={label}") == self.EXPECTED
        assert links(f"<meta charset='{label}'><a href=x>") == [("/dir/x", "L")]

    def test_bytes_that_are_no_text_cost_only_themselves(self) -> None:
        """Undecodable bytes become U+FFFD; the links around them are read."""
        page = b"\xff\xfa<a href=x>\xc3<a href='/\xff'>"
        assert links(page, "text/html; charset=utf-8") == [("/dir/x", "L"), ("/%EF%BF%BD", "L")]


def test_self_closed_elements_of_xhtml_swallow_nothing() -> None:
    """In XHTML `<script/>` is a whole element; in HTML the same text hides what follows."""
    body = """<html><title/><script src="s.js" type='a/b'/><iframe src="f"/><a href="x"/></html>"""
    assert links(body, "application/xhtml+xml") == [("/dir/s.js", "E"), ("/dir/f", "E"), ("/dir/x", "L")]
    assert links(body) == []


@each_row(
    ("body", "expected"),
    [
        (b"", []),
        (b"\0", []),
        (b"\0<a\0 href=1><a href='/x\0y'>", [("/x%EF%BF%BDy", "L")]),
        (b"<a href=/1><a href='/2", [("/1", "L")]),
        (b"<a href=/1></", [("/1", "L")]),
        (b"<!-- <a href=no>", []),
        (b"<script>'<a href=no>'</script><a href=/1>", [("/1", "L")]),
        (
            b"<a href='java\nscript:x'><a href=mailto:a@b.test><a href='  /1\t'><a href='/2\n3'>",
            [("/1", "L"), ("/23", "L")],
        ),
        (b"<a href='http://b.test:99999/'><a href='http://[1/'><a href=/1>", [("/1", "L")]),
        (
            b"<a href='/" + b"x" * 9000 + b"'><img src='data:image/png;base64," + b"A" * 99999 + b"'><a href=/1>",
            [("/1", "L")],
        ),
        (b"<a href=/1 href=/2>", [("/1", "L")]),
        (b"<a href='/?a=1&amp;b=2&copy=3'>", [("/?a=1&b=2&copy=3", "L")]),
    ],
)
def test_a_broken_body_gives_what_can_be_read(body: bytes, expected: list[tuple[str, str]]) -> None:
    """No body is too broken; a tag that the end cuts off is none."""
    assert links(body) == expected


@pytest.mark.parametrize(
    "bomb",
    [
        b"<div>" * 20_000,
        b"".join(b"<b id=%d><p>" % number for number in range(20_000)),
        b"<z>" * 20_000 + b"</y>" * 20_000,
        b"<template>" * 20_000 + b"</template>" * 20_000,
        b"<a " + b" ".join(b"x%d" % number for number in range(20_000)) + b">",
        b"<base href=/dir/>" * 20_000,
        b"<select><button><selectedcontent></button>" + b"<option selected>x" * 100_000,
    ],
    ids=lambda bomb: bomb[:20].decode(),
)
def test_a_bomb_is_read_like_any_page(bomb: bytes) -> None:
    """Nesting and attributes without end cost no hours and no gigabytes, and hide no link (else this test does not end)."""
    assert links(b"<a href=1></a>" + bomb + b"<a href=2>") == [("/dir/1", "L"), ("/dir/2", "L")]


def test_a_kept_resolver_gives_the_same_links() -> None:
    """The resolver's memory of one page never changes the links of another."""
    resolver = LinkResolver()
    options = ExtractOptions()
    body = b"<a href=x><a href=?p><a href=#f><a href=/y><a href=//b.test><a href=http:z>"
    for page in (PAGE, "http://a.test/dir/other", "https://a.test/dir/page.html", "http://b.test/dir/"):
        for _ in range(2):
            assert read_html(body, HTML, page, options, resolver) == read_html(body, HTML, page, options)
    assert len(resolver) > 0


PIECES = st.sampled_from(
    ["<a href=", "<base href=", "<link rel=icon href=", "'", '"', ">", "/x", "?q", "#", "<!--", "-->", "<script>", "</script>",
     "\0", "<svg>", "<template>", "</template>", "é", " ", "javascript:", "http://b.test", "&amp;", "<title>", "</",
     "<style>", "url(", "<img srcset=", "<meta name=robots content="]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode())))
def test_no_body_raises_and_all_links_are_web_urls(body: bytes) -> None:
    """Whatever a server sends: unique http(s) links without fragment."""
    page = found(body, forms=True, speculative=True)
    urls = [link.url for link in page.links]
    assert page.dropped == 0
    assert len(set(urls)) == len(urls)
    assert all(url.startswith(("http://", "https://")) and "#" not in url for url in urls)
    assert all(isinstance(link, Link) and link.hop in "LERXS" for link in page.links)


@pytest.mark.parametrize("name", ["data-src", "data-original", "data-full-src"])
def test_a_list_where_one_url_belongs_is_read_as_a_list(name) -> None:
    """A comma and white space part two URLs; a comma alone is a character of one."""
    for text, urls in (("a.jpg, b.jpg", ["a.jpg", "b.jpg"]), ("a 1x, b 2x", ["a", "b"]), ("a,b.jpg", ["a,b.jpg"])):
        found = contexts(f"<img {name}='{text}'>")
        assert [(url.rpartition("/")[2], hop, context) for url, hop, context in found] == [
            (url, "E", f"@{name}") for url in urls
        ]


@pytest.mark.parametrize(
    "text", ["property=og:image:width content=600", "property=og:title content=x", "property=og:image"]
)
def test_meta_elements_that_hold_no_url_name_nothing(text) -> None:
    """Sizes and titles are not fetched."""
    assert contexts(f"<meta {text}>") == []


def test_a_lack_of_memory_is_not_blamed_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser says only that it cannot parse."""

    def without_memory(*_: object, **__: object) -> None:
        raise html.SelectolaxError("Can't parse HTML")

    monkeypatch.setattr(html, "LexborHTMLParser", without_memory)
    with pytest.raises(MemoryError):
        found("<p>")


@each_row(
    ("text", "urls"),
    [
        ("/a.jpg, /b.jpg", ["/a.jpg", "/b.jpg"]),
        ("/p.jpg,", ["/p.jpg"]),
        ("/n.jpg 2x", ["/n.jpg"]),
        ("/n.jpg 1.5x ", ["/n.jpg"]),
        ("http://b.test/1,http://b.test/2", ["http://b.test/1", "http://b.test/2"]),
        ("/w=1,http://b.test/2", ["/w=1,http://b.test/2"]),
        ("/my photo.jpg", ["/my%20photo.jpg"]),
        ("/a,b.jpg", ["/a,b.jpg"]),
    ],
)
@each_row("element", ["<img data-src='{}'>", "<meta property=og:image content='{}'>"])
def test_a_list_where_one_url_belongs_is_read_as_several(element: str, text: str, urls: list[str]) -> None:
    """None is made up of two, or of a URL and what describes it; commas and spaces of URLs part nothing."""
    assert links(element.format(text)) == [(url, "E") for url in urls]
