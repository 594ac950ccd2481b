"""Element-serial configurations: sequencer and pipe in which one element after the other goes from read to write."""
