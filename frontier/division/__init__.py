"""One crawl in several shares: each has the hosts that are its own, a store and a filter for them, and knows no other's.

A URL's owner follows from its host alone (`ownership`), so a host's gate, its politeness and every URL of it are in one place.
What a page links to elsewhere is put into parcels (`consigning`), one for each owner, in the transaction that ends the page;
`parcels` says how they are written. Who runs the shares brings a parcel to its owner, which takes what is in it as it takes
links of its own pages (`exchange`), and has it taken away when the owner has it durably.

    admission ─▶ consigning ─▶ stores (parcel) ─▶ [who runs the shares] ─▶ exchange of the owner ─▶ admission

So a parcel arrives at least once; since the owner enqueues no URL twice, nothing is lost and nothing done twice, whichever
of them dies when.
"""
