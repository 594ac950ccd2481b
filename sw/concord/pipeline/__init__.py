"""The pass manager: passes in a column, and instruments that time, dump and check them."""
