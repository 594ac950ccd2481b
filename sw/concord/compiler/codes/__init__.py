"""Networks on codes for an NPU that makes codes of accumulators; see docs/integer.md."""
