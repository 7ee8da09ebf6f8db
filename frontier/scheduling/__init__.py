"""Which lane is served next, and when: gates, lanes and queues as far as they are in memory. Pure; the time is an argument.

`gates` count slots and rests, `gatelines` keeps the lanes that wait at each and the heap of gates by opening time, `gategroups`
the second gates. `workqueues` holds queues, lanes and their windows of heads, `lifecycle` the table of a queue's states.
`schedule` leases and takes back; `parking` holds lanes whose queue is busy; `placement` brings lanes in and out, `gatewindow`
gates; what is idle is a row (`prefix`, `storedgates`). `retries` wait for their time, `halting` stops queues.
"""
