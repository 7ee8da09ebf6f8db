"""SURT: the form of a URL that sorts by place."""

import pytest

from crawler.urls.surt import surt_form


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("http://www.a.test/b/c?d", "http://(test,a,www,)/b/c?d"),
        ("https://a.test:8443/", "https://(test,a,:8443)/"),
        ("http://127.0.0.1/x", "http://(127.0.0.1)/x"),
        ("http://[::1]:81/x", "http://([::1]:81)/x"),
        ("HTTP://U:P@A.test:80#f", "http://(test,a,)/"),
        ("mailto:a@b.test", None),
    ],
)
def test_the_host_is_turned_round(url: str, form: str | None) -> None:
    """The form is Heritrix's; an address stays as it is."""
    assert surt_form(url) == form
