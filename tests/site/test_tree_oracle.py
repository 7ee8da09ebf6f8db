"""The reader that crawls of real trees are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rows import each_row
from tests.site.tree_oracle import css_urls, srcset_urls, tree_and_requisites

BASE = "http://h.test:81/docs/"


@each_row(
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


def tree(root: Path, **files: str | bytes) -> Path:
    """Files by name; `__` stands for a slash and `_` before the suffix for a dot."""
    for name, content in files.items():
        path = root / (name.replace("__", "/")[::-1].replace("_", ".", 1)[::-1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def names(root: Path, start: str = "index.html") -> set[str]:
    return {url.removeprefix(BASE) for url in tree_and_requisites(root, start, BASE)}


def test_a_tree_is_read_by_the_elements_that_link_or_embed(tmp_path: Path) -> None:
    """The href of a, area, link and src of iframe, frame, img, script, video count; other attributes do not."""
    index = """<link rel=stylesheet href=s.css><script src=s.js></script><a href=a.html>x</a><area href=b.html>
        <iframe src=c.html></iframe><img src=i.png><video src=v.mp4></video><a name=n.html>x</a><a data-href=d.html>"""
    frames = "<html><frameset><frame src=f.html></frameset></html>"
    files = dict.fromkeys(("s_css", "s_js", "b_html", "c_html", "f_html", "i_png", "v_mp4", "n_html", "d_html"), "")
    tree(tmp_path, index_html=index, a_html=frames, **files)
    assert names(tmp_path) == {
        *("index.html", "s.css", "s.js", "a.html", "b.html", "c.html", "i.png", "v.mp4", "f.html"),
    }


def test_a_links_rel_decides(tmp_path: Path) -> None:
    """No rel and the three that name no page give nothing; every other rel gives a link."""
    rels = {"n_html": "", "p_html": "rel=pingback", "d_html": "rel=DNS-prefetch", "c_html": "rel=preconnect"}
    rels |= {"k_html": "rel=canonical", "i_html": "rel='shortcut icon'"}
    index = "".join(f"<link {rel} href={name.replace('_', '.')}>" for name, rel in rels.items())
    tree(tmp_path, index_html=index, **dict.fromkeys(rels, ""))
    assert names(tmp_path) == {"index.html", "k.html", "i.html"}


def test_only_files_that_exist_on_the_same_origin_count(tmp_path: Path) -> None:
    """Missing files, other hosts, other ports, other schemes and paths above the tree are left out."""
    index = """<a href=gone.html>x</a><a href=http://h.test/docs/a.html>x</a><a href=//other.test:81/docs/a.html>x</a>
        <a href=https://h.test:81/docs/a.html>x</a><a href=../a.html>x</a><a href=mailto:a@b>x</a>
        <a href="http://[bad/">x</a><a href=" b.html#part ">x</a><a href=/docs/c.html>x</a>"""
    tree(tmp_path, index_html=index, a_html="", b_html="", c_html="")
    assert names(tmp_path) == {"index.html", "b.html", "c.html"}


def test_base_href_and_queries_and_folders(tmp_path: Path) -> None:
    """The first base counts; a query makes a URL of its own; a folder leads to its index.html by a redirect."""
    index = "<base href=sub/><base href=wrong/><a href=a.html>x</a><a href='a.html?q=1 2'>x</a><a href=dir>x</a>"
    tree(tmp_path, index_html=index, sub__a_html="", sub__dir__index_html="<a href=../b.html>x</a>", sub__b_html="")
    assert names(tmp_path) == {"index.html", "sub/a.html", "sub/a.html?q=1%202", "sub/dir/", "sub/b.html"}


def test_names_that_need_escapes_are_found(tmp_path: Path) -> None:
    """Spaces and letters beyond ASCII are percent-encoded in URLs, in UTF-8 whatever the page's encoding."""
    utf8 = "<a href='a b.html'>x</a><a href='k\u00e4se.html'>x</a><a href='a%20b.html'>x</a><a href='l.html'>x</a>"
    latin = "<a href='th\u00e9.html'>x</a>".encode("latin-1")
    tree(tmp_path, index_html=utf8, l_html=latin, **{"a b_html": "", "k\u00e4se_html": "", "th\u00e9_html": ""})
    assert names(tmp_path) == {"index.html", "a%20b.html", "k%C3%A4se.html", "l.html", "th%C3%A9.html"}


def test_only_html_is_read(tmp_path: Path) -> None:
    """A text file with a link leads nowhere."""
    tree(tmp_path, index_html="<a href=t.txt>x</a>", t_txt="<a href=a.html>x</a>", a_html="")
    assert names(tmp_path) == {"index.html", "t.txt"}
