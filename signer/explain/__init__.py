"""Explains the controller's decisions without making any: the commands ``explain`` and ``status``.

The controller's own code runs: the same checks, stores and attestors. Its writes stay in memory
(:mod:`signer.explain.dry_run_client`), and no certificate is signed (:mod:`signer.explain.unsigned`).
"""
