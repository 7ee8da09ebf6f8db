"""The crawl order: what to crawl and how.

    sources ─▶ layers ─▶ loading ─▶ CrawlOrder ─▶ rendering

`sources` reads flags, settings, the environment and a file; `loading` merges them and checks the result. `order` is the order
itself, out of the sections in `frontier`, `fetch` and `sections`; `values` and `quantities` say how values are written.
`rendering` writes an order and its JSON Schema for people.
"""
