"""HTTP/1.1 to one API server, which may be hostile: ``pool`` over ``dial`` over ``connection`` over ``response``, and
``tls_transport`` below.

It supports only what calls to API servers need (RFC 9112): one request after the other on a connection, and responses
of a stated length. It has no redirects, cookies, proxies, compression, or upgrades. llhttp, the parser of Node.js,
parses the bytes.
"""
