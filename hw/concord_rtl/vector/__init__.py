"""Units for vectors: the multifunction units, reductions, tables, and rounding to blocks."""
