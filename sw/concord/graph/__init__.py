"""Networks as graphs: what import gives, what passes rewrite, and what the compiler schedules."""
