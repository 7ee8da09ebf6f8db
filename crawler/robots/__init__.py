"""What a host's robots.txt allows (`rules`). Pure."""
