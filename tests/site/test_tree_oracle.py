"""The reader that crawls of real trees are compared with."""

from __future__ import annotations

import pytest

from tests.site.tree_oracle import css_urls, srcset_urls, tree_and_requisites

BASE = "http://docs.test/"


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("a { background: url(a.png) }", ["a.png"]),
        ("a { background: url( 'a b.png' ), url(\"c.png\") }", ["a b.png", "c.png"]),
        ("@import 'x.css' screen; @import url(y.css);", ["x.css", "y.css"]),
        ("/* url(no.png) */ b { content: 'url(no.png)' }", []),
        (r"a { src: url(caf\e9 .woff) }", ["café.woff"]),
        ("a { background: image-set('a.png' 1x, url(b.png) 2x) }", ["a.png", "b.png"]),
        ("a { mask: url(#here) }", []),
        (r"a::after { content: '\'' } b { src: url(x.woff) }", ["x.woff"]),
    ],
)
def test_css(text, urls):
    """`url()`, `@import` and `image-set()`, without comments and other strings."""
    assert css_urls(text) == urls


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("a.png", ["a.png"]),
        ("a.png 1x, b.png 2x", ["a.png", "b.png"]),
        ("a,b.png 100w,\n c.png", ["a,b.png", "c.png"]),
        ("", []),
    ],
)
def test_srcset(text, urls):
    """A comma inside a URL belongs to it."""
    assert srcset_urls(text) == urls


def test_a_tree_with_its_stylesheets_and_images(tmp_path):
    """Pages, what they embed, and what their stylesheets embed; what is missing, elsewhere or in a script is not there."""
    (tmp_path / "index.html").write_text(
        '<link rel=stylesheet href="s/a.css"><img srcset="one.png 1x, two.png 2x"><p style="background: url(three.png)">x</p>'
        '<a href="page.html">x</a><a href="http://elsewhere.test/">x</a><img src="missing.png"><script>"no.png"</script>'
    )
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.css").write_text("@import 'b.css'; a { background: url(../four.png) }")
    (tmp_path / "s" / "b.css").write_text("@import 'a.css';")
    (tmp_path / "page.html").write_text("<meta http-equiv=refresh content='0; url=s/'>")
    (tmp_path / "s" / "index.html").write_text("")
    for name in ("one", "two", "three", "four", "no"):
        (tmp_path / f"{name}.png").write_bytes(b"")
    wanted = ["", "s/a.css", "s/b.css", "one.png", "two.png", "three.png", "four.png", "page.html", "s/"]
    assert tree_and_requisites(tmp_path, "", BASE) == {BASE + name for name in wanted}
