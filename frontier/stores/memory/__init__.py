"""The store that forgets at the end of the process: `store` answers inside the call, `tables` holds the rows in order."""
