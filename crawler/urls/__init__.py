"""URLs: one spelling each (`parsing`), and what dedup takes for one (`canonicalization`). Pure."""
