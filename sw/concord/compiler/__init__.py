"""From a graph to a program: layouts, layers, memory and instructions."""
