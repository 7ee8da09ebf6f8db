"""Look-ups as logs and archives show them, and what may be asked for."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.crawler.network.addresses import parse_address
from anabranch.crawler.network.lookups import AddressRecord, Lookup, ResolverOptions

ROOT = Path(__file__).parents[3]


def test_a_lookup_is_shown_as_heritrix_shows_it() -> None:
    """`dns:host`, status 1, and the time with the resource records behind it."""
    made = Lookup(
        host="a.test",
        start_s=1_767_225_600.9,
        end_s=1_767_225_601.0,
        records=(AddressRecord("A", "192.0.2.1", 300), AddressRecord("AAAA", "2001:db8::1", 60)),
    )
    assert (made.url, made.status) == ("dns:a.test", 1)
    assert made.body == b"20260101000000\na.test.\t300\tIN\tA\t192.0.2.1\na.test.\t60\tIN\tAAAA\t2001:db8::1\n"


def test_a_lookup_that_failed_has_no_record() -> None:
    """Status -1."""
    made = Lookup(host="a.test", start_s=1.0, end_s=2.0, reason="no address for a.test: no such name")
    assert (made.status, made.body) == (-1, b"")


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "family", "wanted"),
    [
        (True, True, socket.AF_UNSPEC, {"1.1.1.1", "2a00::1"}),
        (True, False, socket.AF_INET, {"1.1.1.1"}),
        (False, True, socket.AF_INET6, {"2a00::1"}),
    ],
)
def test_a_family_can_be_switched_off(ipv4: bool, ipv6: bool, family: socket.AddressFamily, wanted: set[str]) -> None:
    """For questions and for addresses that are there already."""
    options = ResolverOptions(ipv4=ipv4, ipv6=ipv6)
    assert options.family == family
    assert {text for text in ("1.1.1.1", "2a00::1") if options.wants(parse_address(text))} == wanted


def test_what_could_never_find_anything_is_refused() -> None:
    """Both families off, or bounds that cross."""
    with pytest.raises(ValueError, match="ipv4 and ipv6 are both off"):
        ResolverOptions(ipv4=False, ipv6=False)
    with pytest.raises(ValueError, match="min_ttl 9 s is above max_ttl 8 s"):
        ResolverOptions(min_ttl_s=9, max_ttl_s=8)


def test_the_options_need_no_library() -> None:
    """The order reads them, and must be read quickly."""
    script = (
        "import sys, anabranch.crawler.network.lookups; print({'aiodns', 'pycares', 'pydantic'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
