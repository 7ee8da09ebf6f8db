"""The hosts' own test suites, run against our adapters: `scripts/host-suites`.

Their tests are fetched when they are needed and stay in a cache; nothing of them is in this repository. A plugin of ours swaps
the class under test (`scrapy_plugin`, `crawlee_plugin`). A test of theirs that states what an adapter cannot or shall not keep
stands in `notapplicable.toml` with its reason. It runs all the same, and fails the suite when it passes after all.
"""
