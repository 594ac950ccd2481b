"""External memory: the controller of an SDR SDRAM, and the search for its clock phase."""
