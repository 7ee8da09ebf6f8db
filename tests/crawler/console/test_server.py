"""Where a console listens."""

import pytest
from fastapi import FastAPI

from anabranch.crawler.console.server import ConsoleOptions, checked_address, serve
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from tests.crawler.console.sockets import taken_port


def no_app(*_: object) -> FastAPI:
    """None is served."""
    return FastAPI()


def options(listen, **more):
    return ConsoleOptions(place=".", listen=listen, **more)


@pytest.mark.parametrize("listen", ["127.0.0.1:8700", "127.9.9.9:1", "[::1]:8700"])
def test_a_loopback_address_needs_nothing_more(listen):
    """No other machine reaches it."""
    assert checked_address(options(listen))[1] > 0


@pytest.mark.parametrize("listen", ["0.0.0.0:8700", "[::]:8700", "192.0.2.1:8700", "[::ffff:127.0.0.1]:8700"])
def test_other_addresses_need_tls_or_a_proxy_that_has_it(listen, tmp_path):
    """Or tokens would pass in the clear."""
    with pytest.raises(UsageError, match="tokens must not pass in the clear"):
        checked_address(options(listen))
    assert checked_address(options(listen, tls=(tmp_path, tmp_path)))
    assert checked_address(options(listen, hosts=["crawls.example.org"]))


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1", "localhost:8700", "", "127.0.0.1:0", "127.0.0.1:65536"])
def test_an_address_is_an_ip_with_a_port(listen):
    """The line names the option."""
    with pytest.raises(UsageError, match="--listen "):
        checked_address(options(listen))


def test_a_port_that_is_taken_is_one_line(tmp_path):
    """With what to do."""
    with taken_port() as port, pytest.raises(CrawlerError, match="already in use; choose another address or port"):
        serve(ConsoleOptions(place=str(tmp_path), listen=f"127.0.0.1:{port}", state=tmp_path / "state"), no_app, print)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used_is_one_line(tmp_path, text):
    """Missing, or something else."""
    files = (tmp_path / "cert.pem", tmp_path / "key.pem")
    for file in files if text else ():
        file.write_text(text)
    with pytest.raises(UsageError, match="--tls-cert, --tls-key: cannot be used"):
        serve(options("127.0.0.1:8700", tls=files, state=tmp_path / "state"), no_app, print)
