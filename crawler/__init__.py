"""Fetch a URL, read it, keep it, report it.

`cli` reads the command line and the crawl order (`order`), opens the job folder (`job`) and starts a `controller`. It reads the
seeds (`seeds`, `seeding`), opens the Frontier, and starts N workers (`workers`). Each takes a lease and passes it, as a
`visit`, through the chain (`chain`, `processors`):

    preconditions (DNS, robots.txt) ─▶ fetch ─▶ extract ─▶ candidates (scope) ─▶ disposition

The disposition always runs: it decides by tables how the visit ends (`failures`, `status`), writes the lines of `crawl.log`
and `pages.jsonl` (`crawl_log`), waits until they are durable (`journal`), and only then finishes the lease, with the page's
outlinks in the same call. What is counted (`statistics`) is shown while it runs (`progress`) and told at the end (`reports`).

This is the only room with sockets, tasks and log configuration (`logs`).
"""

from importlib.util import find_spec
from pathlib import Path
from warnings import warn

_HOME = Path(__file__).resolve().parents[1]

for _room in ("frontier", "dedup"):
    _spec = find_spec(_room)
    if _spec is None or _spec.origin is None or Path(_spec.origin).resolve().parents[1] != _HOME:
        warn(f"the package {_room} is not anabranch's: another distribution owns the name; remove it", stacklevel=2)
