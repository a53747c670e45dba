"""Other programs' verdicts on certificate chains: OpenSSL, Python, curl, Node, GnuTLS, Java, Go and kubectl."""
