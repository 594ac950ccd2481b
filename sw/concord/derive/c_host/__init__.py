"""Hosts in C for microcontrollers: the link, a network, and what is in front of its inputs and after its outputs.

spec_header
    What the library has to know of :mod:`concord.spec`, as a header.
plan
    What of an image is for the host: which bytes go to the device, and where the bytes of its replies belong.
source
    The files.

The library itself is written by hand, in the folder ``library``: it holds no number that a specification says.
"""
