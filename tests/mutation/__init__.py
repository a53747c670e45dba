"""Mutation run over the rules, the models, and what judges bytes of strangers: ``python -m tests.mutation``.

Every change that would weaken or break a check must make a test fail. ``mutants`` makes the changes, ``runner`` runs
the fast tests against each, ``equivalent.txt`` lists the few that change nothing, each with its reason.
"""
