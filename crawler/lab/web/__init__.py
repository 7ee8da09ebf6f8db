"""The generated web of the policy lab: hosts and pages computed from a seed.

`shape.py` reads host and number from a URL and computes its page: status, size, times, links and embeds. Nothing is stored
per page, so a web of 10 million URLs costs no more than its list of hosts. `replay.py` makes a web from a crawl.log instead.
`model.py` has the records and writes page bodies. `server.py` is a process that serves all hosts on one loopback port
and records its requests in `ledger.py`, which checks the politeness. `miniweb.py` starts that process. The simulation calls
the same `page()` and sends nothing.
"""
