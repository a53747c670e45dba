"""Rotates the certificate authorities of a workload cluster in two phases, as GEP-0018 describes (a wing).

A rotation is a list of proofs. Each step has a proof that shows whether the world is already as the step wants it. At
each pass, the controller looks at the world and works on the first step whose proof is missing. So a restart, a second
replica, or an operator who did a part by hand changes nothing.
"""
