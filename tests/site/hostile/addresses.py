"""URLs that a site can make up for its links and redirects, some hundreds, in their canonical form."""

from __future__ import annotations

from functools import cache

from anabranch.crawler.urls.parsing import canonical

_HOSTS = (
    *("a..b.test", "a.test.", "a.test..", ".a.test", "..", ".", "1..2", "com", "co.uk", "localhost"),
    *(
        "a,b.test",
        "a,b",
        "a(b).test",
        "(a",
        "a'b.test",
        "a!b.test",
        "a$b",
        "a&b",
        "a*b",
        "*.a.test",
        "a;b",
        "a=b",
        "a+b",
    ),
    *("-a-.test", "a_b.test", "a~b", "a`b", "a{b}", 'a"b', "xn--", "xn--a", "xn--zzzzzz.test", "XN--A.test"),
    *("a" * 64 + ".test", "a" * 300 + ".test", "a." * 2000 + "test", "a" * 8000),
    *("1.2.3", "0x7f.1", "1.2.3.4.5", "0", "256.256", "[::1]", "[::ffff:1.2.3.4]", "[fe80::1]"),
    *(
        "%2C",
        "a%2Cb.test",
        "a%2eb",
        "a%00b",
        "%",
        "ä.test",
        "ß.test",
        "日本語.jp",
        "a\u200db.test",
        "a\u3002b",
        "\ufb01.test",
    ),
)
_PORTS = ("", ":", ":0", ":00080", ":8080", ":443", ":65535")
_PATHS = (
    *("/", "", "//", "///x", "/a,b/", "/(x)/", "/?", "/?a=/b/", "/%00", "/%zz", "/..//..", "/a;b", "/" + "x/" * 3000),
    *("/é", "/\u202e", "/\x9b", "/'", "/[x", "/a b"),
)


@cache
def addresses() -> tuple[str, ...]:
    """Each once, sorted."""
    written = [f"http://{host}{port}/" for host in _HOSTS for port in _PORTS]
    written += [f"{scheme}{host}{path}" for scheme in ("http://", "https://") for host in _HOSTS[:3] for path in _PATHS]
    written += ["http://u:p@a.test/", "http://@/", "http://u@@a.test/"]
    return tuple(sorted({url for each in written if (url := canonical(each))}))
