"""Which lane is served next, and when: gates, lanes and queues as far as they are in memory. Pure; the time is an argument.

`schedule` is the entry: it gives rows their place, leases, and takes back. `gates` count slots and rests, `readylist` keeps the
lanes that wait at each gate and the heap of gates by opening time, `window` the gates that are in memory, `queues` the work
queues and lanes with their heads, `lifecycle` the table of a queue's states, `retries` the rows that wait for their time.
"""
