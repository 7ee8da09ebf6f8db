"""The operator's side of a Frontier: explanations, lists, statistics, checks, dumps, and loading.

views       read-only views of URLs, queues and gates
explain     facts about one URL or queue as text
statistics  counts of the whole Frontier, and why nothing runs
operations  pause, resume, retire, budget, remove
audit       recounts the invariants
dump        writes and reads the JSONL dump
recovery    reads the recovery journal of Heritrix
load        turns entries of both into rows
"""
