"""What an order decides about URLs, hosts and queues: pure functions and tables, asked by the scheduling.

`assignment` names the queue of a URL (by `hashes`, host, SURT, domain, address, or a function of one's own), `groups` the
second gate of a host. `precedence`, `costs` and `budgets` say which goes first and what it may spend; `queuerules` puts them
together for one queue. `sheets` says what is different for parts of the web, by SURT prefix.
"""
