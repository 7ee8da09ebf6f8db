"""What a crawl keeps of the web: WARC files, their index, and the history of fetches.

A visit that got a response becomes an `Exchange` (`records`): the request as sent, the response as received, how the URL was
found and what it links to. The journal's thread makes WARC records of it and appends them to the open file (`files`), one gzip
member each, with an index line per response (`cdxj`). When the file is full or the crawl ends, its index is sorted and it loses
its `.open`. After a kill the next opening finds the end of the last whole visit, cuts the torn end and finishes the file.

The fetch `history` (an SQLite file, opened by `databases`) knows the payloads that are archived: the same payload becomes a
short `revisit` record, and a URL that is fetched again is requested conditionally. After a 304, `replay` reads the archived
response.

Formats: WARC 1.1 (https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/), CDXJ as pywb reads it.
"""
