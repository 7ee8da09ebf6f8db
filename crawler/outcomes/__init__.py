"""How a URL, its host, a run and a command end: tables and errors, the lowest layer of the room."""
