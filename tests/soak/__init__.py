"""A soak: honest nodes and impostors against controllers, while everything around them breaks at random.

``python -m tests.soak --minutes 20 --seed 7`` runs it; ``docs/development/soak.md`` says what it does.
"""
