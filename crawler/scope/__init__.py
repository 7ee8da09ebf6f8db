"""Decides which URLs belong to the crawl. A link is judged when it is found, and again before it is fetched.

`scope` builds and asks the rules of the order, `rules` has their kinds, `seeds` the part of the web that a seed opens. `body`
has the rules that decide, once a URL has been answered, whether the body is read. Two filters are not rules, because they
remember or count: `similarity`, and the quotas in `scope`.
"""
