"""Which URLs belong to the crawl (`ruling`). Pure."""
