"""URLs: their one canonical form (`parsing`), and the key by which the seen filter knows them (`canonicalization`). Pure."""
