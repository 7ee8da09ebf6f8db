"""Reads the links out of responses.

A response comes to `extractor`, which asks `content_type` for the kind of its body. A small harmless document is read at once,
on the event loop; a large one, or one that `nesting` finds dangerous, in a helper process with limits (`helper`). Both use
`reading`, which reads the header fields itself and calls the reader of the body's kind: `html`, `css_js` or `sitemaps`. All
yield references as written; `resolver` makes `links` of them, each URL once, limits their number and caches them.

No reader raises for anything that a site sends, and each takes linear time.
"""
