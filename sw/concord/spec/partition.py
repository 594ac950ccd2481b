"""What the host may compute of a network."""

#: Nothing; what has no product in front of it or none behind it; anything.
PARTITIONS = ("none", "ends", "any")
