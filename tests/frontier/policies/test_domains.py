"""Registrable domains."""

import pytest

from anabranch.frontier.policies.domains import domain_of


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("example.com", "example.com"),
        ("one.name.github.io", "name.github.io"),
        ("www.city.kawasaki.jp", "city.kawasaki.jp"),
        ("a.b.unlisted", "b.unlisted"),
        ("co.uk", None),
        ("localhost", None),
        ("192.0.2.1", None),
        ("[::1]", None),
        ("", None),
        ("a..b", None),
    ],
)
def test_a_domain_is_the_public_suffix_and_one_label(host: str, domain: str | None) -> None:
    """Private suffixes count; addresses and suffixes have none."""
    assert domain_of(host) == domain
