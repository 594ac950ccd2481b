"""Every primitive of derived models against the golden model, the long way: all formats, levels and patterns.

Usage: ``python tests/derive_proofs.py [onnx] [torch]``; some minutes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "derive"))

from derive_flag_numbers import CONDITIONS, prove_condition
from derive_numbers import PRIMITIVES, prove


def runners(names):
    """By backend and level: what calls a primitive."""
    found = {}
    if "onnx" in names:
        import test_onnx_functions

        found |= {
            f"onnx, optimisation {level}": test_onnx_functions.runner(level) for level in test_onnx_functions.LEVELS
        }
    if "torch" in names:
        import test_torch_functions

        found["torch"] = test_torch_functions.run
    return found


def main(names):
    """Prove all, and print how many results were compared."""
    for where, run in runners(names or ["onnx", "torch"]).items():
        begin = time.monotonic()
        counts = {name: prove(name, run, every=True) for name in PRIMITIVES}
        counts |= {name: prove_condition(name, run, every=True) for name in CONDITIONS}
        print(f"{where}: {sum(counts.values()):,} results equal, {time.monotonic() - begin:.0f} s", counts, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
