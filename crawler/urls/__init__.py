"""URLs: one spelling each (`parsing`), and what dedup takes for one (`canonicalization`); `surt` is the form that sorts by
place. Pure.
"""
