"""The workload cluster's API server, as far as this program needs it: three calls on CertificateSigningRequests."""
