"""A job's pages, links, errors and WARC files in the formats of other programs: `anabranch export`.

`cut` finds what counts of a job at one moment, whether it runs or not, of all its workers. `wacz` makes a package of it that
browsers replay, `tables` makes tables for CSV, SQLite and Parquet, `destination` names the files when all of them are whole.
Nothing here changes the job, and memory does not grow with it.
"""
