"""``make playground``: real API servers, machines with software TPMs and a thief, to try the product by hand.

``docs/playground.md`` says what to do in it.
"""
