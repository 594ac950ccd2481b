"""Parts that know nothing of the NPU: shapes of layouts, stages, register slices, control."""
