"""The field of the GCP attestor's evidence, its bounds, and the audience that binds it to a request."""

from __future__ import annotations

from typing import Final

EVIDENCE_VERSION: Final = "v1"

IDENTITY_TOKEN_FIELD: Final = "identityToken"  # noqa: S105  the name of a field
"""The instance identity token (``format=full``), as the metadata server returns it."""

MAXIMUM_TOKEN_CHARACTERS: Final = 8 * 1024
"""Genuine ones have about 1,200; licences of images make them longer."""

_AUDIENCE_PREFIX: Final = "https://attestation.cluster.x-k8s.io/binding/"


def audience(binding: bytes) -> str:
    """The only audience (``aud``) of an identity token for a request with this binding."""
    return _AUDIENCE_PREFIX + binding.hex()
