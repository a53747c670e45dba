"""Fuzzing of every parser: one small target each, a corpus in ``fixtures/fuzz``, atheris where it can be had.

``targets`` say what is read, which exceptions may come out, and what holds of what is accepted; ``table`` lists them.
"""
