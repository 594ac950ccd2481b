"""Output for people: tables of a terminal, HTML pages, charts and pictures, all in one style."""
