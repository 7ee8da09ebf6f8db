"""A run of a crawl: its parts, its workers, its limits, and the operator's verbs while it runs."""
