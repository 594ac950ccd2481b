"""The libraries that files of Python are written for, and what all of these files begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.derive.backends.constants_file import reader


@dataclass(frozen=True)
class Library:
    """A library of arrays; words that are left out are those of NumPy.

    Parameters
    ----------
    name : str
        As on the command line.
    module : str
        With functions that both libraries call alike.
    join, root, array : str
        Functions: of arrays side by side, of square roots, and that makes an array of one of NumPy.
    permute : str
        A method.
    quiet : str
        The context in which a network is computed.
    needs : str
        What files need, for people.
    imports : str
        Lines after those that all files have.
    constant : str
        An array ``x`` of the file of constants as one of the library; of binary16 numbers as float32.
    """

    name: str = "numpy"
    module: str = "np"
    join: str = "np.concatenate"
    root: str = "np.sqrt"
    array: str = "np.asarray"
    permute: str = "transpose"
    quiet: str = 'np.errstate(all="ignore")'
    needs: str = "NumPy"
    imports: str = ""
    constant: str = "x.astype(np.float32) if x.dtype == np.float16 else x"


NUMPY = Library()
TORCH = Library(
    name="torch",
    module="torch",
    join="torch.cat",
    root="host_root",
    array="torch.from_numpy",
    permute="permute",
    quiet="torch.no_grad()",
    needs="PyTorch and NumPy",
    imports="\nimport torch\nfrom torch import Tensor",
    constant="torch.as_tensor(x)",
)


def python_text(library: Library, about: str, functions: Sequence[str], constants: tuple[str, bytes], *own: str) -> str:
    """The text of a file.

    Parameters
    ----------
    library : Library
    about : str
        The docstring.
    functions : sequence of str
        Texts of the functions of the library.
    constants : tuple
        The name of the npz file beside it, and its contents.
    own : str
        What follows ``W``, the constants by name.
    """
    file, data = constants
    read = f"constants_of(Path(__file__).with_name({file!r})).items()"
    weights = f"W = {{name: {library.constant} for name, x in {read}}}"
    imports = f"from pathlib import Path\n\nimport numpy as np{library.imports}"
    return "\n\n\n".join([f"{about.strip()}\n\n{imports}", *functions, reader(data), weights, *own]) + "\n"


def function_text(head: str, lines: Sequence[str]) -> str:
    """The text of a function."""
    return "\n    ".join([head, *lines])
