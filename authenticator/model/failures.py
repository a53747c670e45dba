"""Reasons for having no certificate, with their exit codes.

::

    Failure
      InvalidConfiguration     2   flags, environment, file or the attestor's settings are wrong
      UnreadableConfiguration 10   the disk or the system does not return the file at this moment
      StillPending             3   there is no decision yet; the next run waits for the same request
      ApiUnavailable           4   the API server is unreachable, busy or broken
      UntrustedServer          5   the server at the API server's address is not the cluster's
      CredentialRefused        6   the API server rejects the credential, or does not authorize it
      Denied                   7   the controller, or a person, refused
      NoCredential             8   no certificate or an expired one, and no bootstrap kubeconfig
      NoEvidence               9   the attestor cannot gather evidence on this machine
      StoreUnusable           10   the store cannot be read, written or locked

0 is success, 1 is a defect of this program, 11 says that standard output cannot be written
(:class:`~attestors.standard_output.OutputNotWritten`), and 12 is of ``status`` alone. Scripts may rely on the numbers.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final, NamedTuple


class ExitCode(enum.IntEnum):
    """The exit code of the process."""

    DONE = 0
    UNEXPECTED = 1
    CONFIGURATION = 2
    PENDING = 3
    UNAVAILABLE = 4
    UNTRUSTED = 5
    REFUSED = 6
    DENIED = 7
    NO_CREDENTIAL = 8
    NO_EVIDENCE = 9
    STORE = 10
    OUTPUT = 11
    MISMATCH = 12


class Explanation(NamedTuple):
    """The meaning of an exit code, and the remedy."""

    meaning: str
    remedy: str


EXPLANATIONS: Final = {
    ExitCode.DONE: Explanation("done", "nothing"),
    ExitCode.UNEXPECTED: Explanation("a defect of this program", "report it, with the traceback"),
    ExitCode.CONFIGURATION: Explanation(
        "flags, environment, file, a kubeconfig or the attestor's settings are wrong",
        "correct what the message names; a retry does not help",
    ),
    ExitCode.PENDING: Explanation(
        "there was no decision before the deadline",
        "check that the controller watches the cluster, that its policy authorizes the attestor, and that the Machine "
        "has its provider ID; the next run waits for the same request",
    ),
    ExitCode.UNAVAILABLE: Explanation(
        "the API server is unreachable, busy or broken", "check the network and the API server; the next run continues"
    ),
    ExitCode.UNTRUSTED: Explanation(
        "the server at the API server's address is not the cluster's",
        "compare address, CA and tls-server-name of the kubeconfig with the cluster; check the clock; look for a "
        "machine in the middle",
    ),
    ExitCode.REFUSED: Explanation(
        "the API server rejects the credential, or does not authorize it",
        "supply a new bootstrap kubeconfig; check that kubeadm's grants for bootstrap tokens exist",
    ),
    ExitCode.DENIED: Explanation(
        "the controller or a person refused, or the certificate is not the requested one",
        "correct what the reason names; the next request, with a new key, follows after a pause that grows up to an "
        "hour, or at once with `kubelet-authenticator request --now`",
    ),
    ExitCode.NO_CREDENTIAL: Explanation(
        "no certificate, or an expired one, and no unused bootstrap kubeconfig",
        "supply one, or let Cluster API replace the Machine; check the clock",
    ),
    ExitCode.NO_EVIDENCE: Explanation(
        "the attestor cannot gather evidence on this machine", "fix what the message names: device, service, settings"
    ),
    ExitCode.STORE: Explanation(
        "the store cannot be read, written or locked, or the disk does not return the configuration file",
        "check the folder, its owner and the disk, or the process that holds the lock",
    ),
    ExitCode.OUTPUT: Explanation(
        "standard output cannot be written, as on a full disk", "check where it is redirected, and run it again"
    ),
    ExitCode.MISMATCH: Explanation(
        "of `status` and `request`: the stored certificate is valid, and for another node name, provider ID, signer or "
        "cluster than is configured",
        "see [another name](#a-certificate-of-another-name)",
    ),
}


class Failure(Exception):
    """There is no certificate. The message tells a person cause and remedy. It holds no secret."""

    exit_code: ClassVar[ExitCode] = ExitCode.UNEXPECTED


class InvalidConfiguration(Failure):
    """Flags, environment, file or the attestor's settings are wrong."""

    exit_code = ExitCode.CONFIGURATION


class UnreadableConfiguration(InvalidConfiguration):
    """The file exists, but the disk or the system does not return it: the agent is restarted, as for its store."""

    exit_code = ExitCode.STORE


class StillPending(Failure):
    """There is no decision yet; the next run waits for the same request."""

    exit_code = ExitCode.PENDING


class ApiUnavailable(Failure):
    """The API server is unreachable, busy or broken; a retry may help."""

    exit_code = ExitCode.UNAVAILABLE


class UntrustedServer(Failure):
    """The server at the API server's address is not the cluster's."""

    exit_code = ExitCode.UNTRUSTED


class CredentialRefused(Failure):
    """The API server rejects the credential, or does not authorize it."""

    exit_code = ExitCode.REFUSED


class Denied(Failure):
    """The controller or a person refused, or the issued certificate is not the requested one."""

    exit_code = ExitCode.DENIED


class NoCredential(Failure):
    """There is no credential for a request."""

    exit_code = ExitCode.NO_CREDENTIAL


class NoEvidence(Failure):
    """The attestor cannot gather evidence on this machine."""

    exit_code = ExitCode.NO_EVIDENCE


class StoreUnusable(Failure):
    """The store cannot be read, written or locked."""

    exit_code = ExitCode.STORE
