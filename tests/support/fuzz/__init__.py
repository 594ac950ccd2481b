"""Damaged and odd input for everything that reads files, lines and words of users, and random networks.

``tests/fuzzing.py`` runs it.
"""
