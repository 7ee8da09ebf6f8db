"""Fetch a URL, read it, keep it, report it.

`cli` reads the command line and the crawl order (`order`), opens the job folder (`job`) and starts `run.controller`.
`run.composition` opens the parts; the controller takes in the seeds and starts N workers (`run.workers`). Each worker takes a
lease and passes it, as a `visit`, through the chain that `processors.chain` builds:

    preselect -> names -> robots.txt -> fetch -> extract -> write -> candidates -> disposition

The disposition always runs: it decides by the tables of `outcomes` how the visit ends, has its WARC records and log lines
written, waits until they are durable, and only then finishes the lease, with the page's outlinks in the same call. `report`
shows the counts. An operator sends verbs through `run.control`. Only this room has sockets, tasks and log configuration.
"""

from importlib.util import find_spec

#: The modules of the libraries in the extra `crawl`.
_LIBRARIES = (
    *("ada_url", "aiodns", "aiohttp", "chardetng_py", "cronsim", "prometheus_client", "pydantic", "pydantic_settings"),
    *("rich", "selectolax", "structlog", "tomli_w", "typer", "webencodings"),
)

if _MISSING := [name for name in _LIBRARIES if find_spec(name) is None]:
    from anabranch.extras import install_command  # importing the room must be fast

    raise ImportError(
        f"the crawler needs {', '.join(_MISSING)}; install them: {install_command('crawl')}",
        name="anabranch[crawl]",
    )
