"""The shell: it watches, asks the rules, and writes. ``run`` puts the pieces together.

fleet               which workload clusters there are, one isolated task each
workload_cluster    one cluster: connection, watch, queue, workers
adjudicator         one CSR: from its object to a Decision, journal written
publisher           one Decision: the writes to the workload cluster
"""
