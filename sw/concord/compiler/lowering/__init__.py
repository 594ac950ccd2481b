"""From a graph to layers."""
