"""What released versions wrote: requests, objects and nodes' stores, recorded for every release and never replaced.

``recorder`` makes the set of the present version from a real run,
``judging`` judges recorded requests by today's code.
"""
