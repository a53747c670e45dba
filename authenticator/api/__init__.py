"""The part of the workload cluster's API server that this program uses: three calls on CertificateSigningRequests."""
