"""Ports of memories, seen from what uses them."""

from concord_rtl.parts.component import Input, Interface, Output


class WritePort(Interface):
    """Writes to a memory, seen from where the words come from.

    Parameters
    ----------
    addr, word : ShapeLike
        Shapes of address and word.
    columns : int
        Parts of a word that are written on their own.
    """

    en = Output(lambda self: self.columns, "One bit per column of a word: it is written at the edge.")
    addr = Output(lambda self: self.addr_shape, "Address.")
    data = Output(lambda self: self.word, "Word.")

    def __init__(self, addr, word, columns=1):
        self.addr_shape, self.word, self.columns = addr, word, columns
        super().__init__()


class ReadPort(Interface):
    """Reads of a memory, seen from where the words go.

    Parameters
    ----------
    addr, word : ShapeLike
        Shapes of address and word.
    """

    en = Output(1, "A word is read.")
    addr = Output(lambda self: self.addr_shape, "Address.")
    data = Input(lambda self: self.word, "The word, when the memory has it.")

    def __init__(self, addr, word):
        self.addr_shape, self.word = addr, word
        super().__init__()
