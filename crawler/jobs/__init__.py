"""A job on disk: its folder (`job`), its logs (`journal`), its seeds (`seeds`, `seeding`), its Frontier (`opening`).

holding      who holds a job: one process at a time
choosing     which order a crawl runs by, in which folder; `checking` says what is wrong with it
rounds       one crawl after another over the same seeds
sourcetags   which seed led to a URL
scheduling   many URLs into the Frontier
writing      what visits are written to
embedded     jobs of host programs; `copying` makes the copies that are looked at
durablefiles, databases   when what is written counts, and how SQLite files are opened
"""
