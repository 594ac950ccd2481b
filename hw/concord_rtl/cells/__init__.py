"""One component for each primitive of a device family: multipliers, block RAMs, registers that stay where they are."""
