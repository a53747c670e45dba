"""Connecting to API servers, clouds and metadata services: dialling, TLS, HTTP responses, repeated attempts, rates."""
