"""Programs of a machine that a scratch root has instead of the real ones; each writes down what was asked of it."""
