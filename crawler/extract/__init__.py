"""Reads the links out of responses. No reader raises for anything that a site sends, and each takes linear time.

`extractor` asks `content_type` for the kind of a body. It reads a small harmless document at once, others in a helper process
with limits (`helper`, `nesting`). `reading` reads the header fields and calls the reader of the body: `html`, `css_js` or
`sitemaps`. All yield references as written; `resolver` makes `links` of them, each URL once, limited and cached.
"""
