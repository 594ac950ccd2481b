"""From layers and their places to a program and the contents of memories."""
