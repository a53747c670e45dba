"""The gateway to containers: ``ssh namespace_pod_container@gateway`` becomes calls to the API of a workload cluster.

It is a program of its own. It holds no key of an authority: its credential for a workload cluster may only impersonate,
and everything that it does there is in the name of the person who made the access grant.
"""
