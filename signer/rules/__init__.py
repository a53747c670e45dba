"""The rules: pure functions over the model's values. No HTTP, no clock, no I/O.

``signer.rules.checks`` lists every check in order.
"""
