"""One crawl in several shares. Each share has its own hosts, and a store and a filter for them.

A URL's owner follows from its host alone (`ownership`), so all URLs of a host and its gate are in one share. Links to other
shares are put into parcels (`consigning`, `parcels`), one for each owner, in the transaction that ends the page. A parcel is
brought to its owner, scheduled there (`exchange`), and removed when that is durable.

    admission ─▶ consigning ─▶ stores (parcel) ─▶ [`crawler.processes`] ─▶ exchange of the owner ─▶ admission

A parcel arrives at least once, and the owner enqueues no URL twice.
"""
