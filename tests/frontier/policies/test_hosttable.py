"""Values for hosts by SURT prefix."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.policies.hosttable import HostTable
from anabranch.frontier.policies.surt import SurtPrefix, parse_surt

HOSTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map(".".join)
PREFIXES = st.builds(SurtPrefix, HOSTS | st.just(""), st.booleans(), st.none(), st.just("")).filter(
    lambda prefix: prefix.host or prefix.with_subdomains
)


def covers(prefix: SurtPrefix, host: str) -> bool:
    """Whether a prefix covers a host, by looking at both."""
    if host == prefix.host:
        return True
    return prefix.with_subdomains and (not prefix.host or host.endswith(f".{prefix.host}"))


@given(st.dictionaries(PREFIXES, st.integers()), HOSTS)
def test_the_longest_prefix_decides(values: dict[SurtPrefix, int], host: str) -> None:
    """As a look at every prefix finds it; a host alone is longer than the host with all below it."""
    table: HostTable[int] = HostTable()
    for prefix, value in values.items():
        table.put(prefix, value)
    fitting = [prefix for prefix in values if covers(prefix, host)]
    best = max(fitting, key=lambda prefix: (len(prefix.host), not prefix.with_subdomains), default=None)
    assert table.get(host) == (None if best is None else values[best])
    assert len(table) == len(values)


def test_a_label_is_matched_whole() -> None:
    """A host that ends with the same letters is another host."""
    table: HostTable[int] = HostTable()
    table.put(parse_surt("a.test"), 1)
    assert [table.get(host) for host in ("a.test", "b.a.test", "ba.test", "test")] == [1, 1, None, None]
