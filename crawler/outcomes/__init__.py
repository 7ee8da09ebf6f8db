"""How a URL, its host, a run and a command end. Tables and errors; the lowest layer of the room.

`status` has the fetch status codes and their classes, `failures` what can go wrong between us and a site, how often it is tried
again and what it says about the host. `errors` has the exit codes and the errors for the operator, `endings` why a run ended,
`userfunctions` the operator's own functions and their failures.
"""
