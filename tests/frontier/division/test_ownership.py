"""Whose a URL is."""

from anabranch.frontier.division.ownership import Division


def test_a_host_has_one_owner_whatever_stands_beside_it() -> None:
    """Scheme, port, capitals and path make no difference: the gate is the host's."""
    division = Division(shares=7, share=0)
    owner = division.owner_of("www.example.org")
    for url in ("http://www.example.org/", "https://WWW.example.org:8443/a?b", "http://www.example.org/z#y"):
        assert division.owner_of_url(url) == owner
    assert division.owner_of_url("mailto:someone") is None


def test_every_share_sees_the_same_owner() -> None:
    """It depends on the host and the number of shares alone."""
    hosts = [f"h{number}.test" for number in range(100)]
    owners = [[Division(shares=3, share=share).owner_of(host) for host in hosts] for share in range(3)]
    assert owners[0] == owners[1] == owners[2]


def test_hosts_are_spread_evenly() -> None:
    """No share has much more than its part."""
    division = Division(shares=4, share=0)
    owners = [division.owner_of(f"h{number}.test") for number in range(4000)]
    assert all(900 < owners.count(share) < 1100 for share in range(4))


def test_a_store_is_one_share_of_one_division() -> None:
    """It says so wherever it is opened."""
    assert Division(shares=3, share=1).identity() == {"share": "1 of 3"}
