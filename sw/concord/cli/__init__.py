"""The commands of ``concord``."""
