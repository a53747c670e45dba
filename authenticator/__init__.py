"""The node's program: the kubelet's exec credential plugin and its agent.

Layers, top down: ``cli``, ``commands``, ``flow``, ``api`` and ``store``, ``model``. The modules that print a stored
certificate (``cli``, ``stored_credential``, ``model.exec_credential``, ``model.pair``) import only a few modules of the
standard library: client-go runs them at the start of every kubelet, and once an hour.

"""
