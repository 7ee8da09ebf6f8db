"""The Frontier inside another program: what every host program needs.

A host program gives settings in plain values (the names of `[frontier]`, `[politeness]` and `[[override]]` in a crawl order)
and gets a job: a Frontier and its folder, which `anabranch frontier` and `anabranch why` open.

    settings    checks plain values, and makes the order and its file from them
    job         EmbeddedJob: the open Frontier and its folder; open_job: the same for programs with asyncio
    hostfolder  HostFolder: takes the folder, refuses folders of other jobs, removes only what was written here
    leaseboard  shows other processes which URLs are leased

`frontier.jobfolder` defines what every job's folder holds. `hosts.scrapy` and `hosts.crawlee` are built on this package.
"""
