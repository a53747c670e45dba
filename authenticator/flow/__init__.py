"""Requests certificates: the I/O around the rules of :mod:`authenticator.model`."""
