"""One HTTP exchange (`fetcher`): a URL in, a response or a `FetchError` out."""
