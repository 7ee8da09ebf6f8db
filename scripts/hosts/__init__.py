"""The test suites of Scrapy and Crawlee, run against our adapters: `scripts/host-suites`.

The tests are downloaded when needed and cached; none is in this repository. A plugin replaces the class under test
(`scrapy_plugin`, `crawlee_plugin`). `notapplicable.toml` lists the tests that cannot or shall not pass, with reasons. They run
anyway, and fail the suite if they pass.
"""
