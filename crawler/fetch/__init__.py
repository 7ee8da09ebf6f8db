"""Fetching: a URL in, a `Response` or a `FetchError` out.

    fetcher            looks up settings, makes the request, exchanges it, learns cookies, translates errors
    options            the order's [fetch] and [[site]]: the settings and limits of fetches, for all or for a part of the web
    requests           the bytes of the request; cookies: a bounded jar; proxy: how proxies are written, SOCKS5
    exchange           sends the request, reads the answer within its limits, cuts it where it exceeds them
    connections        HTTP connections over aiohttp, kept and bounded; connection_limits: how many there may be
    dns                the addresses of a host, cached; addresses: how they are written, which are public, lookup records
    response           the raw answer: head, and body in memory or in a file; decoding: content codings undone

Redirects are not followed: they are links. A body is kept as received, with its content coding. An answer that exceeds a limit
is cut and kept. A connection that breaks before the announced end is a failure (-3), as in Heritrix, and is tried again.
"""
