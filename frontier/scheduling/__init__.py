"""Which lane is served next, and when: gates, lanes and queues as far as they are in memory. Pure; the time is an argument.

`schedule` is the entry: it gives rows their place, leases, and takes back. `gates` count slots and rests; `heaps` order gates
by opening time and rows that wait for a retry; `readylist` has the work queues, their lanes with heads, and the lanes that wait
at each gate; `queues` the rules by which queues are served, `lifecycle` the table of their states; `window` the gates that
are in memory, `fairness` and `domains` the limits of workers, `holds` the gates that wait for a service.
"""
