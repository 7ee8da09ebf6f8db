"""One HTTP exchange: a URL in, a `Response` or a `FetchError` out.

    fetcher     what a fetch is asked for, and what comes of it
    exchange    one request, its answer read within its limits; answers: an answer's head
    requests    what is sent; origins: what the requests of a site have in common
    ways        aiohttp's connector, once for each way out
    options     what every fetch does and may cost (the order's [fetch]); sites: what is different for a part of the web
    response    what came back, raw; bodies: its payload, in memory while small, in a file without a name when large
    decoding    content codings undone, with a limit on what comes out
    cookies     a bounded jar; proxies: which proxy, and how it is written
    kinds       what the libraries raise, and which failure that is

Redirects are not followed (they are links). A body is kept as it came, its content coding too, and its SHA-1 is known when it
is there. What is cut is kept: a body above its limit (`lenTrunc`), a body whose time ran out after its first byte
(`timeTrunc`), headers without end (`headerTrunc`). A connection that breaks before the announced end is no answer (-3), as in
Heritrix, and is tried again. Which address is dialled, and whether it may be, is decided in `crawler.network.connector`.
"""
