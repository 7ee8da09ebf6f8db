"""The crawler room: fetch a URL, read it, keep it, report it."""
