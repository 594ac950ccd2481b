"""Compiled networks: what joins the frontend, the compiler and the host."""
