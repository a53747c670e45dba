"""``node-access``: asks for access to nodes, and runs a stock ``ssh`` with what it was given.

The same program is ``kubectl-node_access``, so that ``kubectl node-access`` works. It talks to the management cluster
through ``kubectl``, so that every kind of kubeconfig and login works. It needs the standard library, ``cryptography``
and ``attestors.wire.ssh``.

``words`` and ``grants`` parse, ``manifests``, ``node_files`` and ``container_files`` write; they know no files, clocks
or processes.
``programs``, ``kubectl``, ``ssh_agent``, ``folders`` and ``addresses`` are the machine. ``access`` finds or makes a
grant, ``heartbeat`` keeps it alive, and ``commands`` are what a person calls.
"""
