"""Links out of what was fetched.

An answer comes to `dispatch`, which asks `mediatypes` what it is and reads the header itself (`headers`). A small harmless
document is read at once, on the event loop; a large one, or one that `nesting` cannot vouch for, in a helper process with
limits (`sandbox`, `helper`). Both use `reading`, which calls the reader of the kind: `html` (with the table of `elements`,
`srcset`, `refresh`, `rels`), `css`, `sitemaps`, `speculative`; `charsets` makes text of bytes. All yield references as they are
written; `gathering` makes links of them, each URL once, and cuts what is too much; `resolving` remembers them, and `plain`
says which need no parsing.

No reader raises for what a site sends, and each is linear in it.
"""
