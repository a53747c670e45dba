"""``make demo``: honest and dishonest machines request certificates; only the honest ones get one.

Everything runs on this host: embedded API servers, software TPMs (if swtpm is installed), a fake AWS and a fake Google.
"""
