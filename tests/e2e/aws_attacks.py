"""Attacks on the AWS attestor, and what each is told. Each differs from an honest request in one thing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from attestors.aws import wire
from tests.e2e.aws_suspect import Fields, Suspect
from tests.integration.aws.fixtures import token_fields
from tests.support import aws_documents
from tests.support.aws_documents import ACCOUNT, OTHER_REGION, REGION
from tests.support.fake_aws import Answer
from tests.support.fake_aws.accounts import Issuer

OTHER_ACCOUNT: Final = "210987654321"

Attack: TypeAlias = Callable[[Suspect, Suspect], Fields]
"""Evidence from the victim's and the attacker's hands, for a request that claims the victim's provider ID."""


def forged(*signers: aws_documents.Authority, embedded: bool = True) -> Attack:
    """The victim's document, signed by these."""

    def make(victim: Suspect, attacker: Suspect) -> Fields:
        document = victim.own.document
        signed = aws_documents.signed_data(
            *(aws_documents.signer_info(signer, document) for signer in signers),
            content=aws_documents.streamed_content(document),
            between=aws_documents.tlv(0xA0, signers[0].der) if embedded else b"",
        )
        return attacker.fields(document=signed)

    return make


def edited(victim: Suspect, attacker: Suspect) -> Fields:
    """The attacker's own document, which says in its signature's place that it is the victim's."""
    own, wanted = (one.own.launched.instance_id.encode() for one in (attacker, victim))
    return attacker.fields(
        document=aws_documents.signed_data(
            aws_documents.signer_info(aws_documents.authority(REGION), attacker.own.document),
            content=aws_documents.streamed_content(attacker.own.document.replace(own, wanted)),
        )
    )


def request_with(**changes: Any) -> Attack:
    """Rightly signed by the victim itself, for something else or at another time."""
    return lambda victim, attacker: victim.fields(**changes)


def request_at(offset: timedelta) -> Attack:
    return lambda victim, attacker: victim.fields(at=datetime.now(UTC) + offset, expires=900)


def url_with(old: str, new: str) -> Attack:
    """The victim's own request, changed afterwards."""

    def change(victim: Suspect, attacker: Suspect) -> Fields:
        url = victim.presigned(expires=301)
        assert old in url
        return victim.fields(url=url.replace(old, new, 1))

    return change


def session_of(**changes: Any) -> Attack:
    """The victim's document beside a session that STS knows, and that is not quite the victim's."""
    return lambda victim, attacker: victim.fields(victim.session(**changes))


def session_named(name: Callable[[str], str]) -> Attack:
    """Somebody who may assume the role, and who chose the session's name."""

    def make(victim: Suspect, attacker: Suspect) -> Fields:
        chosen = name(victim.own.launched.instance_id)
        return victim.fields(victim.session(session_name=chosen, instance_arn=""))

    return make


def token_with(**changes: Any) -> Attack:
    return lambda victim, attacker: victim.token(**changes)


def token_at(offset: timedelta, **changes: Any) -> Attack:
    def make(victim: Suspect, attacker: Suspect) -> Fields:
        at = int((datetime.now(UTC) + offset).timestamp())
        return victim.token(iat=at, exp=at + 300, **changes)

    return make


def another_issuers_token(victim: Suspect, attacker: Suspect) -> Fields:
    issuer = Issuer(generation=1)
    own = victim.account.sts.issuer
    claims = own.claims(
        victim.own.session, wire.audience(victim.binding().value), datetime.now(UTC), timedelta(minutes=5)
    )
    return token_fields(issuer.token(claims), document=victim.signed)


COPIED_NAME: Final = aws_documents.authority(
    "attacker with the name", serial_number=aws_documents.authority(REGION).certificate.serial_number
)
ATTACKS_WITH_THE_ATTACKERS_KEY: Final = frozenset({"own document", "another instance's document", "edited document"})
"""Those that an attacker posts for a key of its own; the others could be the victim's own requests."""
ATTACKS: Final[Mapping[str, tuple[Attack, str, str]]] = {
    "own document": (lambda victim, attacker: attacker.fields(), "ProviderIDMismatch", "document is of"),
    "another instance's document": (
        lambda victim, attacker: attacker.fields(document=victim.signed),
        "CallerIsAnotherInstance",
        "session is not",
    ),
    "attacker's certificate": (
        forged(aws_documents.authority("attacker")),
        "IdentityDocumentRefused",
        "not signed with the certificate of",
    ),
    "issuer and serial of AWS": (forged(COPIED_NAME), "IdentityDocumentRefused", "does not verify with the key of"),
    "two signers": (
        forged(aws_documents.authority(REGION), aws_documents.authority("attacker")),
        "MalformedEvidence",
        "signer",
    ),
    "another region's key": (
        forged(aws_documents.authority(OTHER_REGION), embedded=False),
        "IdentityDocumentRefused",
        "not signed with the certificate of",
    ),
    "edited document": (edited, "IdentityDocumentRefused", "differs from the signed content"),
    "another action": (
        request_with(parameters={"Action": "GetSessionToken", "Version": "2011-06-15"}),
        "MalformedEvidence",
        "another Action",
    ),
    "another host": (request_with(host="sts.evil.example"), "MalformedEvidence", "another host"),
    "another service": (request_with(host="iam.amazonaws.com"), "MalformedEvidence", "another host"),
    "another path": (url_with(".com/?", ".com/x?"), "MalformedEvidence", "another path"),
    "another scheme": (url_with("https:", "http:"), "MalformedEvidence", "https URL"),
    "parameter twice": (url_with("&X-Amz-Date", "&Action=GetCallerIdentity&X-Amz-Date"), "MalformedEvidence", "twice"),
    "parameter twice in another case": (
        url_with("&X-Amz-Date", "&action=GetSessionToken&X-Amz-Date"),
        "MalformedEvidence",
        "twice",
    ),
    "parameter in another case": (url_with("X-Amz-Date", "X-AMZ-DATE"), "MalformedEvidence", "letter case"),
    "unsigned binding": (request_with(headers={}), "MalformedEvidence", "sign exactly the headers"),
    "expires late": (request_with(expires=901), "MalformedEvidence", "expire"),
    "changed afterwards": (url_with("Expires=301", "Expires=302"), "CallerIdentityRefused", ""),
    "16 minutes old": (request_at(timedelta(minutes=-16)), "EvidenceExpired", ""),
    "six minutes old": (request_at(timedelta(minutes=-6)), "EvidenceExpired", ""),
    "from the future": (request_at(timedelta(minutes=8)), "EvidenceFromTheFuture", ""),
    "session looks like it": (session_named(lambda name: f"{name}0"), "CallerIsAnotherInstance", "session is not"),
    "session in capitals": (session_named(str.upper), "CallerIsAnotherInstance", "session is not"),
    "other account's role": (session_of(account=OTHER_ACCOUNT), "CallerOfAnotherAccount", "another account"),
    "another partition's role": (session_of(partition="aws-cn"), "CallerOfAnotherAccount", "another account"),
    "role not allowed": (session_of(role_name="build-agents"), "RoleNotAllowed", "role build-agents"),
    "guessed key": (
        lambda victim, attacker: victim.fields(victim.own.session.but(secret_key="guessed")),
        "CallerIdentityRefused",
        "",
    ),
    "expired credentials": (session_of(expires_at=datetime(2026, 1, 1, tzinfo=UTC)), "CallerIdentityRefused", ""),
    "token without algorithm": (token_with(header={"alg": "none"}), "MalformedEvidence", ""),
    "token with a MAC": (token_with(header={"alg": "HS256"}), "MalformedEvidence", ""),
    "token without key": (token_with(header={"kid": ...}), "MalformedEvidence", ""),
    # Old enough that the issuer's keys at hand are younger for sure.
    "token by an unknown key": (token_at(timedelta(minutes=-3), header={"kid": "RSA_9"}), "WebIdentityRefused", ""),
    "token by another issuer": (another_issuers_token, "WebIdentityRefused", ""),
    "token of no instance": (token_with(about={"ec2_source_instance_arn": ...}), "CallerIsAnotherInstance", ""),
    "token for somebody else": (token_with(aud="https://api.example.com"), "MalformedEvidence", ""),
    "token expired": (token_at(timedelta(minutes=-10)), "EvidenceExpired", ""),
}


def _reflected(victim: Suspect) -> bytes:
    """The right answer inside another one, as where somebody found a call of STS that repeats what it was sent."""
    session = victim.own.session
    result = {"Account": ACCOUNT, "Arn": session.arn, "UserId": session.user_id}
    inside = {"GetCallerIdentityResponse": {"GetCallerIdentityResult": result}}
    return json.dumps({"GetAccessKeyInfoResponse": inside, **inside}).encode()


ANSWERS: Final[Mapping[str, Callable[[Suspect], Answer]]] = {
    "redirect": lambda victim: Answer(302, headers={"Location": "https://sts.evil.example/"}),
    "redirect with the right answer": lambda victim: Answer(307, _reflected(victim), headers={"Location": "/"}),
    "XML": lambda victim: Answer(200, b"<GetCallerIdentityResponse/>", "text/xml"),
    "2 MiB": lambda victim: Answer(200, b" " * 2 * 1024 * 1024),
    "reflected": lambda victim: Answer(200, _reflected(victim)),
    "throttling": lambda victim: Answer.error(400, "Throttling"),
    "outage": lambda victim: Answer(503, b"", "text/plain"),
}
"""What STS never says, or says when it is of no use: nothing of it is believed, and nobody is denied for it."""
