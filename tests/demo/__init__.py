"""``make demo``: four machines ask to join, on the embedded API; only the honest one gets a certificate.

Then two more, each with a software TPM, where there is one.
"""
