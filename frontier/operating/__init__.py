"""What an operator sees and orders: reasons, lists, statistics, checks, dumps, and the way in from elsewhere.

`operations` are his verbs. `views` gathers what is known of one URL, queue or gate, `explain` says it in words, `idleness` says
why nothing runs. `dump` writes everything as JSONL; `dumpreading` and `recovery` (Heritrix's journal) read it, `load` feeds
it to `loading`. `audit` recounts what must be true.
"""
