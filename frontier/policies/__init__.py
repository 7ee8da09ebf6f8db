"""What an order decides about URLs, hosts and queues: pure functions and tables, asked by the scheduling. Depends on records.

`assignment` names the queue of a URL (by its hash, host, SURT, domain, address, or a user's function), `groups` the second gate
of a host. `precedence` and `budgets` say which goes first and what it may spend. `sheets` says what is different for parts of
the web, by SURT prefix; `hosts` takes URLs, domains and SURT forms apart; `userfunctions` calls functions of the user.
"""
