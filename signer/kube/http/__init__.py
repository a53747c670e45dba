"""HTTP/1.1 to one API server, which may be hostile: ``pool`` over ``dial`` over ``connection`` over ``response``, and
``tls_transport`` below.

Only what calls to API servers need (RFC 9112): one request after the other on a connection, answers that say where they
end. No redirects, cookies, proxies, compression, or upgrades. The bytes are read by llhttp, the parser of Node.js.
"""
