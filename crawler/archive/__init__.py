"""The archive of a crawl: WARC files, their index, and the history of fetches.

A visit that got a response becomes an `Exchange` (`records`). The journal's thread makes WARC records of it and appends them to
the open file (`files`), one gzip member each, with an index line per response (`cdxj`). A full file gets its sorted index and
loses its `.open`. After a kill the next opening cuts the torn end and finishes the file. The fetch `history` (SQLite, opened by
`databases`) knows the archived payloads: the same payload becomes a `revisit` record, and a URL is requested conditionally when
it comes again. After a 304, `replay` reads the archived response.
"""
