"""A web in a box: the policy lab's hosts and pages, the same for the same seed, on no disk and in no memory.

One URL through it: `shape.py` reads host and number out of its text and computes the page from them and the seed: status, size,
times, links and embeds. Nothing is kept for each page, so a web of 10 million URLs costs no more than its list of hosts.
`model.py` has the records (`WebOptions`, `WebHost`, `Page`, `Web`) and writes the body of a page. `server.py` serves it: one
process that answers for all hosts on one loopback port and enters what it sees of each host in `ledger.py`; the ledger shows
at the end whether a politeness was kept. `miniweb.py` starts that process. The simulation calls the same `page()`
and sends nothing.

`replay.py` makes a web of a crawl.log: there the hosts, sizes, times and links of a real crawl decide.
"""
