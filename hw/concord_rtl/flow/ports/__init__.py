"""Components at the pins of a board for its link: a file for each kind."""
