"""Signer names of CertificateSigningRequests (Kubernetes ``ValidateSignerName``)."""

from __future__ import annotations

import re

from .status import FieldError, invalid_value, required, too_long

MAXIMUM_DOMAIN = 253
MAXIMUM_LABEL = 63
MAXIMUM_SIGNER_NAME = MAXIMUM_DOMAIN + 1 + MAXIMUM_DOMAIN + 1 + MAXIMUM_LABEL
"""571: domain, slash, and a path as long as a node's or namespace's name with a label."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def _labels(text: str, limit: int) -> bool:
    return all(len(part) <= limit and _LABEL.fullmatch(part) for part in text.split("."))


def validate_signer_name(path: str, signer_name: str) -> list[FieldError]:
    """Violations of ``<domain with at least two labels>/<path>``, 571 characters at most."""
    if not signer_name:
        return [required(path)]
    domain, slash, suffix = signer_name.partition("/")
    if not slash:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid_value(path, signer_name, text)]
    if "/" in suffix:
        return [invalid_value(path, signer_name, "must be a fully qualified domain and path with exactly one '/'")]
    errors = []
    if not _labels(domain, MAXIMUM_LABEL):
        text = "must be made of lowercase RFC 1123 labels"
        errors.append(invalid_value(path, domain, text))
    elif "." not in domain:
        errors.append(invalid_value(path, domain, "should be a domain with at least two segments separated by dots"))
    if not suffix:
        errors.append(invalid_value(path, suffix, "validating signer name path: must not be empty"))
    elif not _labels(suffix, MAXIMUM_DOMAIN):
        errors.append(invalid_value(path, suffix, "path must be a lowercase RFC 1123 subdomain"))
    if len(signer_name) > MAXIMUM_SIGNER_NAME:
        errors.append(too_long(path, MAXIMUM_SIGNER_NAME))
    if len(domain) > MAXIMUM_DOMAIN:
        errors.append(too_long(path, MAXIMUM_DOMAIN))
    return errors
