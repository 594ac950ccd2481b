"""Pictures of the documentation that are made from definitions and sources, as SVG in ``docs/pictures``."""
