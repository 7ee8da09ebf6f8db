"""What an operator asks of a job, running or stopped: `verbs` from plain arguments to plain facts, `control` the socket."""
