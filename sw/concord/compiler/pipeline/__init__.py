"""The passes of the compiler in a column, the levels between them, and the strategies that are tried."""
