"""The Frontier inside another program: what every host needs that is not written for it.

A host says in plain values what it wants (`settings`: the names of `[frontier]` and `[politeness]` in a crawl order), and
gets a job (`job`): a Frontier, and the folder that is held for it (`folder`) as a crawl's is, so that `anabranch frontier`
and `anabranch why` can look into it.

    settings ─▶ FrontierOrder ─▶ EmbeddedJob(folder) ─▶ schedule · lease · wake · finish

How requests of Scrapy and of Crawlee become candidates, and leases become their requests, is `frontier.adapters`' business.
"""
