"""Remedies for errors of the management cluster's API server, to append to the error's message."""

from __future__ import annotations

from typing import Final

from signer.kube.errors import Forbidden, Unauthorized

_REMEDIES: Final[dict[type[BaseException], str]] = {
    Unauthorized: ": the credentials are unknown or expired: see --kubeconfig",
    Forbidden: ": grant that to the user of --kubeconfig, or use another user (docs/operating.md, Grants)",
}


def remedy_of(error: BaseException | None) -> str:
    """The remedy; empty if none is known."""
    # In the Pod of a controller that serves one namespace, the grants are for that namespace.
    is_too_wide = isinstance(error, Forbidden) and "at the cluster scope" in str(error)
    scope = "; if the grants are for one namespace only, give --namespace" if is_too_wide else ""
    return _REMEDIES.get(type(error), "") + scope if error is not None else ""
