"""SSH: public keys, certificates, detached signatures and revocation lists, in OpenSSH's formats.

Both programs use it. Nothing here reads files, clocks or the network, and every parser either returns an immutable
value or raises :class:`SSHRefused` with a reason. Sources: RFC 4251, 4253, 5656, 8332 and 8709, and OpenSSH's
PROTOCOL.certkeys, PROTOCOL.u2f, PROTOCOL.sshsig and PROTOCOL.krl.

``keys`` and ``key_line`` hold public keys, ``certificate`` certificates with their ``principals`` and ``options``,
``signatures`` and ``sshsig`` signatures, and ``krl`` revocation lists.
"""
