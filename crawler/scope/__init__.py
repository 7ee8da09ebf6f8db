"""Decides which URLs belong to the crawl. A link is judged when it is found, and again before it is fetched.

`scope` builds the rules of the order's section and asks them in order: the last rule that decides wins, and a trace says which
one it was. `rules` has the kinds of rules, `seeds` the part of the web that a seed opens and large sets of SURT prefixes.
Two filters are not rules, because they remember or count: `similarity` drops URLs that resemble URLs already accepted, and the
quotas in `scope` stop a host that has used up its share.

All is pure, except the operator's user functions and the table of `similarity`.
"""
