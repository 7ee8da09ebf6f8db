"""Crawls in virtual time: `anabranch lab simulate`. The Frontier is the real one; the fetches are computed.

    options -> web -> for each policy: Frontier in memory <- virtual time <- visits (robots.txt, fetch, processor) -> series

The web computes how long the fetch of a lease takes (`virtualtime.py`). Nothing is sent and nothing waits: the clock jumps to
the next end of a fetch or opening of a gate. The crawler's one processor is a queue that each
page passes. The series of samples (`running.py`) has the form of a live crawl's, so tables and panels are those of
`crawler.lab.policies`; `simulate.py` has the options, runs all policies, and reports the deviation from a live comparison.
"""
