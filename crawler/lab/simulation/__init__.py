"""Crawls in virtual time: `anabranch lab simulate`. The Frontier is the real one; what it is told is made up.

    options → web → for each policy: Frontier in memory ← virtual time ← visits (robots.txt, fetch, processor) → series

A lease comes out of the Frontier (`virtualtime.py`), and its visit asks the web how long its fetch takes (`visits.py`); nothing
is sent and nothing waited for: the clock jumps to the next end of a fetch or opening of a gate. What a crawler's one processor
needs for a page is a queue in front of it (`processor.py`). The series (`sampling.py`) is one that a live crawl could have
made, so tables and panels are those of `crawler.lab.policies`; `deviation.py` says how far it is from one that was.
"""
