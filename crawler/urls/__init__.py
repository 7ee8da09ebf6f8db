"""URLs: one spelling each (`parsing`), the links of pages in that spelling (`links`), and what dedup takes for one
(`canonicalization`); `surt` is the form that sorts by place. Pure.
"""
