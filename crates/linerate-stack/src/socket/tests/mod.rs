//! Two stacks over a wire in memory.
