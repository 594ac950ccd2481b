"""Damaged and odd input for everything that reads files, lines and words of users; ``tests/fuzzing.py`` runs it."""
