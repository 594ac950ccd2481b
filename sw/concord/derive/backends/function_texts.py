"""Functions of the back ends that write Python, as the texts that derived files hold.

A function that NumPy and PyTorch have in the same words is stated once, in the module for NumPy. For PyTorch it is
spelled by a table.
"""

from __future__ import annotations

import re
from importlib.resources import files

from concord.derive.backends.python_host_partition import CONSTANTS
from concord.spec.formats import FLAG_BITS

_MARK = "# --- arithmetic ---\n"
_OPERATIONS = "# --- operations ---\n\n\n"
#: What only files of one library have is behind it.
_ALONE = "# --- in this library alone ---\n\n\n"
#: Spellings of PyTorch by those of NumPy, longer ones first.
_SPELLINGS = {
    'with np.errstate(over="ignore"):\n        steps': "steps",
    'x.dtype.kind in "iu"': "not x.is_floating_point()",
    'x.dtype.kind == "f"': "x.is_floating_point()",
    "np.asarray(values": "torch.as_tensor(values",
    "np.asarray(x)": "x if torch.is_tensor(x) else torch.as_tensor(np.array(x))",
    "np.prod(": "np.prod(",
    "x.transpose(": "x.permute(",
    "np.ndarray": "Tensor",
    "np.rint(": "torch.round(",
    "np.clip(": "torch.clamp(",
    ", out=codes": "",
    ".size and": ".numel() and",
    ".astype(": ".to(",
    ".max(": ".amax(",
    "keepdims": "keepdim",
    "np.": "torch.",
}


def _text(module: str, mark: str = _MARK) -> str:
    """The text of a module behind a mark."""
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_text(encoding="utf-8").split(mark, 1)[1].strip()


def library_text(library: str, shared: str, own: str) -> str:
    """The functions of a library.

    Parameters
    ----------
    library : str
        ``"numpy"`` or ``"torch"``.
    shared : str
        The module for NumPy, which has those of both libraries first.
    own : str
        The module of those that only PyTorch has.
    """
    both, of_numpy = _text(shared).split(_ALONE)
    return both + of_numpy if library == "numpy" else _in_torch(both) + _text(own)


def _in_torch(text: str) -> str:
    """A text for NumPy in the spelling of PyTorch."""
    return re.sub("|".join(map(re.escape, _SPELLINGS)), lambda match: _SPELLINGS[match[0]], text)


def with_operations(library: str) -> str:
    """The functions of a library, with those of :mod:`concord.operations` in the place of their mark."""
    text = library_text(library, f"{__package__}.numpy_functions", f"{__package__}.torch_functions")
    operations = _text(f"concord.operations.{library}_text", _OPERATIONS)
    return text.replace(_OPERATIONS, f"{operations}\n\n\n")


def flag_text(library: str) -> str:
    """The functions of a library that raise flags."""
    text = library_text(library, f"{__package__}.numpy_flags", f"{__package__}.torch_flags")
    return f"FLAGS = {FLAG_BITS!r}\n\n\n{text}"


def host_text(library: str) -> str:
    """The functions of a library for what the host computes, and their constants."""
    text = library_text(library, "concord.golden.host_math", f"{__package__}.torch_host")
    return "\n\n\n".join([CONSTANTS, text.split("\n\n\n", 1)[1]])


def defined(text: str) -> list[str]:
    """Names of the functions of a text."""
    return re.findall(r"^def (\w+)", text, re.MULTILINE)
