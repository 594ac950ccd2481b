"""Parts of a network that the host may compute."""

#: Nothing; what has no product in front of it or none after it; anything.
PARTITIONS = ("none", "ends", "any")
