"""Fetch a URL, read it, keep it, report it.

`cli` reads the command line and the crawl order (`orders`), opens the job folder (`jobs`) and starts a `controller`. It has
`composition` open the parts, takes in the seeds, and starts N workers (`workers`). Each takes a lease and passes it, as a
`visit`, through the chain (`chain`; `steps` says of which `processors`):

    in scope? ─▶ DNS, robots.txt ─▶ fetch ─▶ extract ─▶ archive ─▶ candidates (scope) ─▶ disposition

The steps stand on `robots`, `network`, `fetching`, `extracting`, `archiving`, `urls` and `scope` (`admission`). The disposition
always runs: it decides by the tables of `outcomes` how the visit ends, has its WARC records and log lines written, waits until
they are durable, and only then finishes the lease, with the page's outlinks in the same call. What is counted is shown while
it runs and told at the end (`reporting`); an operator asks and orders meanwhile (`operating`).

This is the only room with sockets, tasks and log configuration.
"""
