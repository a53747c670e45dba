"""Ground that attestors of clouds share: bounded calls, a cache of answers, and what the clouds' APIs say, typed.

It knows no attestor. Libraries of clouds are imported only inside what needs them, so that everything here can be
imported without them.
"""
