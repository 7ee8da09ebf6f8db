"""The rows that the workers of one job share, next to those of its Frontier: order, seeds, limits, commands, outputs."""
