"""Other ways into a cluster's machines than SSH certificates, as far as objects of the management cluster declare any.

``findings`` has what is found, ``infrastructure`` and ``kubeadm`` the rules for the objects' fields, and ``status``
what people see; all four are pure. ``reading`` reads the objects, and ``watch`` has them read every few minutes.
"""
