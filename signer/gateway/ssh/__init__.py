"""The gateway's SSH server (RFC 4251 to 4254), by asyncssh, which no other package here imports."""
