"""The definitions shared by RTL, emulator, packer, assembler and documents.

Standard library only: everything here can be imported by the hardware generator and by the host software alike.
"""
