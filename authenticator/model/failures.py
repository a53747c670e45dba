"""Why there is no certificate, and the exit code that says so.

::

    Failure
      InvalidConfiguration     2   flags, environment, file or the attestor's settings are wrong
      UnreadableConfiguration 10   disk or system do not give the file at this moment
      StillPending             3   nobody has decided yet; the same request is waited for next time
      ApiUnavailable           4   the API server is unreachable, busy or broken
      UntrustedServer          5   whoever answers at the API server's address is not it
      CredentialRefused        6   the API server does not accept the credential, or does not let it ask
      Denied                   7   the controller, or a person, refused
      NoCredential             8   nothing to ask with: no certificate or an expired one, and no bootstrap kubeconfig
      NoEvidence               9   the attestor cannot gather evidence here
      StoreUnusable           10   the store cannot be read, written or locked
      OutputNotWritten        11   standard output cannot be written

0 is success, and 1 a defect of this program. Scripts may rely on the numbers.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final, NamedTuple


class ExitCode(enum.IntEnum):
    """What the process ends with."""

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


class Explanation(NamedTuple):
    """What an exit code means, and what a person does about it."""

    meaning: str
    remedy: str


EXPLANATIONS: Final = {
    ExitCode.DONE: Explanation("done", "nothing"),
    ExitCode.UNEXPECTED: Explanation("a defect of this program", "report it, with the traceback"),
    ExitCode.CONFIGURATION: Explanation(
        "flags, environment, file, a kubeconfig or the attestor's settings are wrong",
        "mend what the message names; trying again does not help",
    ),
    ExitCode.PENDING: Explanation(
        "nobody has decided before the deadline",
        "see that the controller watches the cluster, that its policy authorizes the attestor, and that the Machine "
        "has its provider ID; the next run waits for the same request",
    ),
    ExitCode.UNAVAILABLE: Explanation(
        "the API server is unreachable, busy or broken", "see to the network and the API server; the next run goes on"
    ),
    ExitCode.UNTRUSTED: Explanation(
        "whoever answers at the API server's address is not it",
        "compare address, CA and tls-server-name of the kubeconfig with the cluster; see that the clock is right; look "
        "for somebody in between",
    ),
    ExitCode.REFUSED: Explanation(
        "the API server does not accept the credential, or does not let it ask",
        "supply a new bootstrap kubeconfig; see that kubeadm's grants for bootstrap tokens are there",
    ),
    ExitCode.DENIED: Explanation(
        "the controller or a person refused, or the certificate is not what was asked for",
        "mend what the reason names; it is asked again, with a new key, after a pause that grows up to an hour, or at "
        "once with `kubelet-authenticator request --now`",
    ),
    ExitCode.NO_CREDENTIAL: Explanation(
        "no certificate, or one that ran out, and no bootstrap kubeconfig that was not used before",
        "supply one, or let Cluster API replace the Machine; see that the clock is right",
    ),
    ExitCode.NO_EVIDENCE: Explanation(
        "the attestor cannot gather evidence on this machine", "mend what the message names: device, service, settings"
    ),
    ExitCode.STORE: Explanation(
        "the store cannot be read, written or locked, or the disk does not give the configuration file",
        "see to the folder, its owner and the disk; or to who holds the lock",
    ),
    ExitCode.OUTPUT: Explanation(
        "standard output cannot be written, as on a full disk", "see to what it is directed to, and run it again"
    ),
}


class Failure(Exception):
    """There is no certificate. The text is for a person: what is wrong, and what to do. It holds no secret."""

    exit_code: ClassVar[ExitCode] = ExitCode.UNEXPECTED


class InvalidConfiguration(Failure):
    """Flags, environment, file or the attestor's settings are wrong."""

    exit_code = ExitCode.CONFIGURATION


class UnreadableConfiguration(InvalidConfiguration):
    """The file is there, and disk or system do not give it: the agent is started again, as with its store."""

    exit_code = ExitCode.STORE


class StillPending(Failure):
    """Nobody has decided yet; the same request is waited for next time."""

    exit_code = ExitCode.PENDING


class ApiUnavailable(Failure):
    """The API server is unreachable, busy or broken; it is worth asking again."""

    exit_code = ExitCode.UNAVAILABLE


class UntrustedServer(Failure):
    """Whoever answers at the API server's address is not it."""

    exit_code = ExitCode.UNTRUSTED


class CredentialRefused(Failure):
    """The API server does not accept the credential, or does not let it ask."""

    exit_code = ExitCode.REFUSED


class Denied(Failure):
    """The controller, or a person, refused; or what was issued is not what was asked for."""

    exit_code = ExitCode.DENIED


class NoCredential(Failure):
    """There is nothing to ask with."""

    exit_code = ExitCode.NO_CREDENTIAL


class NoEvidence(Failure):
    """The attestor cannot gather evidence here."""

    exit_code = ExitCode.NO_EVIDENCE


class StoreUnusable(Failure):
    """The store cannot be read, written or locked."""

    exit_code = ExitCode.STORE


class OutputNotWritten(Failure):
    """Standard output cannot be written; the text says why."""

    exit_code = ExitCode.OUTPUT
