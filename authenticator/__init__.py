"""The agent plugin: the kubelet's exec credential plugin and its agent.

``cli`` over ``commands`` over ``flow`` over ``api`` and ``store`` over ``model``. What prints a stored certificate
(``cli``, ``stored_credential``, ``model.exec_credential``, ``model.pair``) imports a few modules of the standard
library and nothing else: client-go runs it at the start of every kubelet, and once an hour.
"""
