"""The Frontier inside another program: what every host needs that is not written for it.

A host says in plain values what it wants (the names of `[frontier]`, `[politeness]` and `[[override]]` in a crawl order), and
gets a job: a Frontier, and the folder that is held for it as a crawl's is, so that `anabranch frontier` and `anabranch why` can
look into it.

    settings ─▶ FrontierOrder ─▶ EmbeddedJob(folder) ─▶ schedule · lease · wake · finish

    settings    the order that plain values make, and its file; `overrides` for parts of the web, `tables` checks both
    job         EmbeddedJob: the open Frontier and its folder
    folder      what any job's folder has, a crawl's too: its mark, its lock
    hostfolder  HostFolder: whose job a folder is, and what may be removed from it
    leaseboard  what is in flight, for other processes to see
    aio         open_job: such a job for a program with asyncio

How requests of Scrapy and of Crawlee become candidates, and leases become their requests, is `frontier.adapters`' business.
"""
