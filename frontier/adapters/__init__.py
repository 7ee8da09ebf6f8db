"""The Frontier inside other crawlers: one package a host, imported only by who asks for it.

    scrapy   a scheduler, a dupe filter, a priority queue, a spider middleware (the extra `scrapy`)
    crawlee  a request manager, a storage client (the extra `crawlee`)

Each translates: the host's requests into candidates whose payload they are, leases into its requests, and what the host says of
their end into outcomes. Whatever both need is `frontier.embedding`'s.
"""
