"""Names and sockets: how an address is written (`addresses`), where hosts are found (`dns`), what is dialled (`connector`)."""
