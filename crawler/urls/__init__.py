"""URLs: one spelling each (`parsing`), and the parts of them that the crawl decides by. Pure."""
