"""The Frontier inside other programs: one package for each kind of host program, imported only by those who ask for it.

    embedding  any program: settings in plain values, and a job in a folder
    scrapy     a scheduler, a dupe filter, a priority queue, a spider middleware (the extra `scrapy`)
    crawlee    a request manager, a storage client (the extra `crawlee`)

`scrapy` and `crawlee` translate: requests of the host become candidates with the request as payload, leases become its
requests again, and what the host reports of their end becomes outcomes. Both use `embedding`.
"""
