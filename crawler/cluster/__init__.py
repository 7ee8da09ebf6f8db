"""What the workers of one job have in common, as rows beside those of its Frontier: order, seeds, limits, commands, outputs."""
