"""Links out of what was fetched: `html` reads pages, `nesting` keeps from the tree builder what would stall it."""
