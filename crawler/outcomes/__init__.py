"""How things end: a URL, its host, a run, a command. Tables and errors, no behaviour.

`status` has the fetch status codes and their classes, `failures` what can go wrong between us and a site, how often it is tried
again and what it tells of the host. `errors` are for the operator, `exits` the exit codes, `endings` why a run ended.
"""
