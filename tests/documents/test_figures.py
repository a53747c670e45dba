"""Figures and names that stand in the text are those of the code."""

from __future__ import annotations

import pytest

from attestors.wire import evidence, names
from signer import cli
from signer.authority.duration import BACKDATE, MINIMUM_DURATION
from signer.controller import adjudicator, authority_source, recorder, run
from signer.kube import client, watch, workqueue
from signer.model import certificate_request, policy, record, reservation
from signer.rules import request
from tests.documents.markdown import ROOT

_MIB = 1024 * 1024
WORDS = {5: "five", 7: "seven", 8: "eight", 10: "ten"}

PROTOCOL = (
    f"`{names.CLIENT_SIGNER_PREFIX}<provider>`",
    f"`{names.SERVING_SIGNER_PREFIX}<provider>`",
    f"`{names.CERTIFICATE_REQUEST_LABEL}` first",
    f"`{names.ATTESTATION_PROVIDER_LABEL}`",
    f"`{names.ATTESTATION_DATA_LABEL}`",
    f"`{names.ATTESTATION_DATA_LABEL_ALIAS}` is read as the same label",
    f"OID {names.PROVIDER_ID_OID}",
    f"at most {names.MAXIMUM_PROVIDER_ID_CHARACTERS} characters",
    f"At most {names.MAXIMUM_REQUEST_BYTES // 1024} KiB before base64",
    f"reads and writes `{names.EVIDENCE_VERSION}`",
    f"`{evidence.VERSION_KEY}` | first",
    f"`{evidence.CA_CERT_HASH_KEY}` | second",
    f"more than {evidence.MAXIMUM_FIELDS} keys",
    f"`{names.CHALLENGE_ANNOTATION}`",
    f"`{names.SUPPORTED_VERSIONS_ANNOTATION}`",
    f"`{names.ENDORSEMENT_KEY_ANNOTATION}`",
    f"`{reservation.CONTESTED_ANNOTATION}`",
    f"Bounds: {certificate_request.MAXIMUM_EXTENSIONS} extensions, {certificate_request.MAXIMUM_ALTERNATIVE_NAMES} "
    f"alternative names, {certificate_request.MAXIMUM_SUBJECT_ATTRIBUTES} subject attributes",
    f"RSA of {request.MINIMUM_RSA_BITS} to {request.MAXIMUM_RSA_BITS} bits",
    f"the newest {record.JOURNAL_ENTRIES}",
    f"{WORDS[BACKDATE.seconds // 60]} minutes before the decision",
    f"`spec.expirationSeconds` below {MINIMUM_DURATION.seconds} is denied",
    f"less than {WORDS[MINIMUM_DURATION.seconds // 60]} minutes left",
    f"exponential backoff of at most {workqueue.DEFAULT_BACKOFF.maximum_seconds / 60:.0f} minutes",
)
SECURITY = (
    f"{names.MAXIMUM_REQUEST_BYTES // 1024} KiB, and bounds on every count",
    f"A list page of more than {client.MAXIMUM_BODY_BYTES // _MIB} MiB",
    f"A list beyond {client.LIST_BYTES_PER_BODY * client.MAXIMUM_BODY_BYTES // _MIB} MiB, "
    f"or with more than {watch.MAXIMUM_OBJECTS:,} requests of ours",
    f"{WORDS[policy.DEFAULT_CERTIFICATE_DURATION.days]} days by default",
)
OPERATING = (
    f"what is under way has {WORDS[int(run.DRAIN_SECONDS)]} seconds",
    f"{cli.EXIT_FAILED} failed while running, {cli.EXIT_USAGE} wrong usage",
    f"{WORDS[int(authority_source.FAILURE_KEPT_SECONDS)]} seconds after a failure",
    f"every {WORDS[int(recorder.REPEAT_SECONDS) // 60]} minutes",
    f"within {adjudicator._ATTESTATION_SECONDS:.0f} seconds",
)
WRITING = (f"It has {adjudicator._ATTESTATION_SECONDS:.0f} seconds", "At most 1024 characters, no secret")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (document, words)
        for document, figures in (
            ("protocol", PROTOCOL),
            ("security", SECURITY),
            ("operating", OPERATING),
            ("writing-an-attestor", WRITING),
        )
        for words in figures
    ],
)
def test_the_document_says_what_the_code_does(document: str, words: str) -> None:
    text = (ROOT / f"docs/{document}.md").read_text(encoding="utf-8")
    assert words in " ".join(text.split())


def test_a_year_is_the_default_of_insecure_certificates() -> None:
    assert policy.DEFAULT_INSECURE_CERTIFICATE_DURATION.days == 365


def test_a_minute_is_how_long_a_secret_is_kept() -> None:
    assert authority_source.KEPT_SECONDS == 60
