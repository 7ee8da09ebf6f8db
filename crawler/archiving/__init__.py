"""What a crawl keeps of the web: WARC files, their index, and what is known of earlier fetches.

A visit that was answered becomes an `Exchange` (`exchanges`): the request as it was sent, the answer as it came, where it was
found and what it links to. The journal's thread makes WARC records of it (`records`, `files`) and appends them to the open file
(`growing`), one gzip member each, with a line of index per answer (`cdxj`); when the file is full or the crawl ends, the index
is sorted and the file loses its `.open` (`finishing`). After a kill the next opening finds the end of the last whole visit
(`members`), cuts what is torn and finishes the file. What was fetched is remembered (`payloads`, `payload_rows`): a payload
that is there already becomes a short `revisit` record, and a URL that is fetched again is asked for only if it changed.

Formats: WARC 1.1 (https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/), CDXJ as pywb reads it.
"""
