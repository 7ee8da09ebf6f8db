"""The crawl order: what to crawl and how.

sources ─▶ layers ─▶ loading ─▶ CrawlOrder ─▶ rendering
"""
