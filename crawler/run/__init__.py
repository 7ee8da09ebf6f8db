"""A run of a crawl: its parts, its workers, its limits, and what an operator asks of it while it runs."""
