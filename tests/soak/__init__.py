"""A soak test: honest nodes and impostors send requests to controllers while random faults are injected.

Run it with ``python -m tests.soak --minutes 20 --seed 7``; ``docs/development/soak.md`` describes it.
"""
