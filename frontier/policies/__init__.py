"""Policies of an order for URLs, hosts and queues: pure functions and tables. The scheduling calls them.

`assignment` names the queue of a URL (by its hash, host, SURT, domain, address, or a user's function), `groups` the
second gate of a host. `precedence` and `budgets` decide which queue goes first and what it may spend. `sheets` finds
the settings that differ for parts of the web, by SURT prefix; `hosts` takes URLs, domains and SURT forms apart;
`userfunctions` calls functions of the user. The folder depends on records.
"""
