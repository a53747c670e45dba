"""``make demo``: four machines ask to join, on the embedded API; only the honest one gets a certificate.

Then two with a software TPM each, where there is one, and instances of a fake AWS and a fake Google.
"""
