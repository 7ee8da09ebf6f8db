"""Which URLs belong to the crawl: a link becomes a candidate if the scope takes it, and is judged again before it is fetched.

`places` says what a seed opens, `rules` has the kinds of rules, `ruling` asks them in order: the last that decides wins, and a
trace says which it was (`explaining` puts it in words). `opening` makes the rules out of the order's section. `surts` holds
long lists of prefixes. Beside the scope stand two things that are no rules, since they remember or count: `similar` drops URLs
like those taken before, `quotas` says what is used up.

All is pure, but for functions of the operator's own and the table of `similar`.
"""
