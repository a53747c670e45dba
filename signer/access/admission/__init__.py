"""What an API server asks before it takes an object of access: who made it, and what may change.

API servers from 1.30 evaluate it as policies in CEL (:mod:`signer.access.admission.policies`), and from 1.36 fill in
the creator (:mod:`signer.access.admission.mutation`). For older ones, the controller serves the same as a webhook,
whose rules are a function (:mod:`signer.access.admission.judge`). One table of cases runs through both.
"""
