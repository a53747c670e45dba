"""Shared code of cloud attestors: bounded calls, a cache of answers, and typed answers of the clouds' APIs.

It depends on no attestor. Cloud libraries are imported only where they are used, so that every module here can be
imported without them.
"""
