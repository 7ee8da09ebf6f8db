"""The crawls that are compared with the product, each a file that runs by itself: `python FILE SEED CONCURRENCY LOOP`.

The peers' run in an environment where nothing of this clone is, so none imports another. All names that end in `.bench.test`
are 127.0.0.1 to them, without a look-up by anyone.
"""
