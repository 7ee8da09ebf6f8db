"""The crawl order: what to crawl and how. `order` has its sections, `sources` merges flags, environment and file.

`types` and `quantities` say how values are written; `frontier` holds what concerns queues, politeness and single sites.
"""
