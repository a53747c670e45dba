"""How a certificate is asked for: the shell around the rules of :mod:`authenticator.model`."""
