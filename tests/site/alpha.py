"""The host www.alpha.test of the small web: links in every spelling, redirects, base elements, the elements.

A path under `/trap/` exists nowhere: it stands where a crawler must not find a link.
"""

from tests.site.page import Link, Page, failure, file, go, redirect, trap

ALPHA = "http://www.alpha.test"

#: One URL, spelled in many ways; all of them are `/same` of www.alpha.test.
SPELLINGS = (
    "/same",
    "same",
    "./same",
    "../same",
    "a/../same",
    "/./same",
    "/%2e/same",
    "//www.alpha.test/same",
    "HTTP://WWW.Alpha.TEST/same",
    "http://www.alpha.test:80/same",
    "http://www.alpha.test:/same",
    "http:same",
    "http:///www.alpha.test/same",
    "\\same",
    "/same#top",
    "/same#",
    "  /same \n",
    "/sa\tme",
    "/sa\r\nme",
    "http://somebody:secret@www.alpha.test/same",
    "http://www%2Ealpha.test/same",
)

#: Odd but valid links from `/odd/deep/page?old=1#part`: the spelling, and where it leads.
ODD_LINKS = (
    ("", "/odd/deep/page?old=1"),
    ("#part", "/odd/deep/page?old=1"),
    ("?new=2", "/odd/deep/page?new=2"),
    (".", "/odd/deep/"),
    ("./", "/odd/deep/"),
    ("..", "/odd/"),
    ("../../../../up", "/up"),
    ("%2e%2E/dots", "/odd/dots"),
    ("a//b", "/odd/deep/a//b"),
    (";v=1", "/odd/deep/;v=1"),
    ("with space", "/odd/deep/with%20space"),
    ("käse", "/odd/deep/k%C3%A4se"),
    ("/%73ame", "/%73ame"),
    ("/odd/%e4", "/odd/%e4"),
    ("/odd/50%", "/odd/50%"),
    ('/odd/<b>"{}`', "/odd/%3Cb%3E%22%7B%7D%60"),
    ("/odd/a|b[c]", "/odd/a|b[c]"),
    ("/q?a=1&b=2", "/q?a=1&b=2"),
    ("/q?copy=1&copy=2", "/q?copy=1&copy=2"),
    ("/q?a b=<c>&d=ü", "/q?a%20b=%3Cc%3E&d=%C3%BC"),
    ("/q?list[]=1&path=/a/../b", "/q?list[]=1&path=/a/../b"),
    ("/q?u=http://beta.test/trap/query", "/q?u=http://beta.test/trap/query"),
    ("http://www.alpha.test", "/"),
    ("http://www.alpha.test?root", "/?root"),
    ("http://bücher.test/", "http://xn--bcher-kva.test/"),
)

#: Values of `href` that lead nowhere a crawler can go.
NO_LINKS = (
    "mailto:somebody@www.alpha.test",
    "javascript:location='/trap/script-link'",
    "JavaScript:void(0)",
    "java\nscript:location='/trap/script-link'",
    "data:text/html,<a href='/trap/data'>x</a>",
    "tel:+1-555-0100",
    "ftp://www.alpha.test/trap/ftp",
    "http://",
    "http://www.alpha.test:99999/trap/port",
    "http://a b.test/trap/space-in-host",
    "about:blank",
)

_ODD_PAGE = Page(
    links=tuple(Link(raw, to) for raw, to in ODD_LINKS) + tuple(trap(raw) for raw in NO_LINKS),
)

ALPHA_PAGES: dict[str, Page] = {
    "/": Page(
        links=go("/redirects/", "/spelled/", "/odd/", "/base/", "/elements/", "/robots-are-404-here")
        + go("http://blog.alpha.test/", "http://beta.test/", "http://www.alpha.test:8080/trap/other-port")
        + go("http://nowhere.test/trap/no-such-name", "http://www.alpha.test/gone")
    ),
    "/?root": Page(),
    "/up": Page(),
    "/same": Page(),
    "/%73ame": Page(),
    "/robots-are-404-here": Page(links=go("/")),
    # Spellings and odd links
    "/spelled/": Page(links=(*go("/spelled-one", "/spelled-two"), Link("../same", "/same"))),
    "/spelled-one": Page(links=tuple(Link(raw, "/same") for raw in SPELLINGS)),
    "/spelled-two": Page(links=tuple(Link(raw, "/same") for raw in reversed(SPELLINGS))),
    "/odd/": Page(links=(Link("deep/page?old=1#part", "/odd/deep/page?old=1"),)),
    "/odd/deep/": Page(),
    "/odd/deep/page?old=1": _ODD_PAGE,
    "/odd/deep/page?new=2": Page(),
    "/odd/dots": Page(),
    "/odd/deep/a//b": Page(),
    "/odd/deep/;v=1": Page(),
    "/odd/deep/with%20space": Page(),
    "/odd/deep/k%C3%A4se": Page(),
    "/odd/%e4": Page(),
    "/odd/50%": Page(),
    "/odd/%3Cb%3E%22%7B%7D%60": Page(),
    "/odd/a|b[c]": Page(),
    "/q?a=1&b=2": Page(),
    "/q?copy=1&copy=2": Page(),
    "/q?a%20b=%3Cc%3E&d=%C3%BC": Page(),
    "/q?list[]=1&path=/a/../b": Page(),
    "/q?u=http://beta.test/trap/query": Page(),
    # Redirects
    "/redirects/": Page(
        links=go(*(f"/redirects/{name}" for name in ("301", "302", "303", "307", "308", "relative", "query")))
        + go(*(f"/redirects/{name}" for name in ("up", "space", "upper", "fragment", "chain-1", "loop-1", "self")))
        + go("/redirects/away", "/redirects/nowhere", "/redirects/mail", "/redirects/to-404")
    ),
    "/redirects/301": redirect(301, f"{ALPHA}/redirects/after-301", "/redirects/after-301"),
    "/redirects/302": redirect(302, f"{ALPHA}/redirects/after-302", "/redirects/after-302"),
    "/redirects/303": redirect(303, f"{ALPHA}/redirects/after-303", "/redirects/after-303"),
    "/redirects/307": redirect(307, f"{ALPHA}/redirects/after-307", "/redirects/after-307"),
    "/redirects/308": redirect(308, f"{ALPHA}/redirects/after-308", "/redirects/after-308"),
    "/redirects/relative": redirect(302, "after-relative", "/redirects/after-relative"),
    "/redirects/query": redirect(302, "?page=2", "/redirects/query?page=2"),
    "/redirects/up": redirect(302, "../redirects/./after-up", "/redirects/after-up"),
    "/redirects/space": redirect(302, "/redirects/after space", "/redirects/after%20space"),
    "/redirects/upper": redirect(301, "HTTP://WWW.ALPHA.TEST:80/redirects/after-upper", "/redirects/after-upper"),
    "/redirects/fragment": redirect(301, "/redirects/after-fragment#part", "/redirects/after-fragment"),
    "/redirects/chain-1": redirect(301, "chain-2", "/redirects/chain-2"),
    "/redirects/chain-2": redirect(302, "/redirects/chain-3", "/redirects/chain-3"),
    "/redirects/chain-3": redirect(308, "//www.alpha.test/redirects/after-chain", "/redirects/after-chain"),
    "/redirects/loop-1": redirect(302, "loop-2", "/redirects/loop-2"),
    "/redirects/loop-2": redirect(302, "loop-1", "/redirects/loop-1"),
    "/redirects/self": redirect(301, "/redirects/self", "/redirects/self"),
    "/redirects/away": redirect(302, "http://beta.test/only-by-redirect", "http://beta.test/only-by-redirect"),
    "/redirects/nowhere": failure(302),
    "/redirects/mail": redirect(302, "mailto:somebody@www.alpha.test", None),
    "/redirects/to-404": redirect(301, "/redirects/gone", "/redirects/gone"),
    **{f"/redirects/after-{name}": Page() for name in ("301", "302", "303", "307", "308", "relative", "up")},
    **{f"/redirects/after-{name}": Page() for name in ("upper", "fragment", "chain")},
    "/redirects/after%20space": Page(),
    "/redirects/query?page=2": Page(),
    # base elements
    "/base/": Page(links=go("/base/absolute", "/base/relative", "/base/second", "/base/foreign", "/base/useless")),
    "/base/absolute": Page(
        head=f'<base href="{ALPHA}/base/there/">',
        links=(Link("leaf-1", "/base/there/leaf-1"), Link("../leaf-2", "/base/leaf-2")),
    ),
    "/base/relative": Page(
        head='<base target="_top"><base href="sub/dir/">',
        links=(Link("leaf-3", "/base/sub/dir/leaf-3"), Link("?x=1", "/base/sub/dir/?x=1")),
    ),
    "/base/second": Page(
        head='<base href="/base/first/"><base href="/trap/second-base/">',
        links=(Link("leaf-4", "/base/first/leaf-4"),),
    ),
    "/base/foreign": Page(
        head='<base href="http://beta.test/from-base/">',
        links=(Link("leaf-5", "http://beta.test/from-base/leaf-5"), Link(f"{ALPHA}/base/leaf-6", "/base/leaf-6")),
    ),
    "/base/useless": Page(head='<base href="data:text/plain,x">', links=(Link("leaf-7", "/base/leaf-7"),)),
    "/base/there/leaf-1": Page(),
    "/base/leaf-2": Page(),
    "/base/sub/dir/leaf-3": Page(),
    "/base/sub/dir/?x=1": Page(),
    "/base/first/leaf-4": Page(),
    "/base/leaf-6": Page(),
    "/base/leaf-7": Page(),
    # The seven elements, and places where no link is
    "/elements/": Page(
        links=(
            Link("/elements/a", "/elements/a"),
            Link("/elements/nofollow", "/elements/nofollow", rel="nofollow"),
            Link("/elements/area", "/elements/area", "area"),
            Link("/elements/iframe", "/elements/iframe", "iframe", hop="E"),
            Link("/elements/frameset", "/elements/frameset", "iframe", hop="E"),
            Link("/elements/image.png", "/elements/image.png", "img", hop="E"),
            Link("/elements/script.js", "/elements/script.js", "script", hop="E"),
            Link("/elements/style.css", "/elements/style.css", "link", "stylesheet", "E"),
            Link("/elements/icon.png", "/elements/icon.png", "link", "SHORTCUT Icon", "E"),
            Link("/elements/module.js", "/elements/module.js", "link", "modulepreload", "E"),
            Link("/elements/prefetch", "/elements/prefetch", "link", "prefetch", "E"),
            Link("/elements/prerender", "/elements/prerender", "link", "prerender", "E"),
            Link("/elements/canonical", "/elements/canonical", "link", "canonical"),
            Link("/elements/next", "/elements/next", "link", "next"),
            trap("/trap/pingback", "link", "pingback"),
            trap("/trap/dns-prefetch", "link", "dns-prefetch"),
            trap("/trap/preconnect", "link", "preconnect"),
            trap("/trap/no-rel", "link"),
            trap("data:image/png;base64,AAAA", "img"),
            Link("/elements/no-links", "/elements/no-links"),
        )
    ),
    "/elements/frameset": Page(links=(Link("/elements/frame", "/elements/frame", "frame", hop="E"),)),
    "/elements/no-links": Page(
        body=b"""<!DOCTYPE html><html><head><title>Not one link</title>
        <script>document.write('<a href="/trap/in-script">x</a>')</script>
        <style>/* url(/trap/in-style) */ body { content: "url(/trap/in-style)" }</style></head><body>
        <!-- <a href="/trap/in-comment">x</a> --> <a name="here">an anchor</a> <a>nothing</a>
        <textarea><a href="/trap/in-textarea">x</a></textarea> &lt;a href="/trap/as-text">
        http://www.alpha.test/trap/as-words <form action="/trap/form"><input type="submit"></form>
        <p title="/trap/in-title" data-href="/trap/data-href">x</p></body></html>"""
    ),
    "/elements/image.png": file("image/png", b"\x89PNG\r\n\x1a\n" + b'<a href="/trap/in-png">x</a>'),
    "/elements/icon.png": file("image/png", b"\x89PNG\r\n\x1a\n"),
    "/elements/script.js": file("text/javascript", b"document.write('<a href=\"/trap/in-js-file\">x</a>')\n"),
    "/elements/module.js": file("text/javascript", b"export const one = 1\n"),
    "/elements/style.css": file("text/css", b"/* @import '/trap/in-css-file'; */\n"),
    **{f"/elements/{name}": Page() for name in ("a", "nofollow", "area", "iframe", "frame", "prefetch")},
    **{f"/elements/{name}": Page() for name in ("prerender", "canonical", "next")},
}
