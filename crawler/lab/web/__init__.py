"""A web in a box: the policy lab's hosts and pages, the same for the same seed, on no disk and in no memory.

One URL through it: `shape.py` reads host and number out of its text and computes the page from them and the seed: status,
size, times, links and embeds. Nothing is kept for each page, so a web of 10 million URLs costs no more than its list of hosts
(`hosts.py`). `pages.py` writes the body that has just these links and just that size. `crawler/lab/miniweb.py` serves it:
one process that answers for all hosts on one loopback port and notes in the `ledger.py` what each host has borne; the ledger
says at the end whether a politeness was kept. The simulation asks the same `page()` and sends nothing.

`replay.py` makes a web of a crawl.log: there the hosts, sizes, times and links of a real crawl decide.

Records are in `model.py`: what is asked for (`WebOptions`), a host (`Site`), a URL's answer (`Page`), and the `Web` itself.
"""
