"""A job on disk: its folder and lock (`job`), its logs (`journal`), its seeds (`seeds`, `seeding`), its Frontier (`opening`).

`durablefiles` says when what is written counts, `databases` how SQLite files are opened.
"""
