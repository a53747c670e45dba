"""``python -m tests.support.record_reviews``: records AdmissionReviews of operations from a real kube-apiserver.

A webhook receives the reviews and lets every request pass. Reviews differ little between versions of Kubernetes: the
recorded ones are of the newest that was at hand (KUBEBUILDER_ASSETS).
"""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from signer.kube.resources import NODE_ATTESTATION_POLICIES
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.rotation_operations import CASES, NAMESPACE, REVIEWS, prepare

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class _Recorder(http.server.BaseHTTPRequestHandler):
    reviews: dict[str, dict[str, Any]]

    def do_POST(self) -> None:
        """Keep the review, and allow the request."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reviews[review["request"]["name"]] = review
        answer = {**review, "response": {"uid": review["request"]["uid"], "allowed": True}}
        del answer["request"]
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def recording(
    control_plane: ControlPlane, admin: RawClient, group: str, resources: Sequence[str]
) -> Iterator[dict[str, dict[str, Any]]]:
    """A webhook for creations and updates; the reviews so far, by the objects' names."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = control_plane.ca.issue_serving("webhook", ("127.0.0.1",))
        pair = Path(folder) / "pair.pem"
        pair.write_bytes(certificate + key)
        reviews: dict[str, dict[str, Any]] = {}
        handler = type("Handler", (_Recorder,), {"reviews": reviews})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _install(admin, server.server_address[1], control_plane.ca.certificate_pem, group, resources)
        yield reviews
        server.shutdown()


def write_review(path: Path, review: dict[str, Any]) -> None:
    """Write one review to a file, without what is long and unused."""
    for each in ("object", "oldObject"):
        (review["request"][each] or {}).get("metadata", {}).pop("managedFields", None)
    path.write_text(json.dumps(review, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Write one file for each case."""
    resource = NODE_ATTESTATION_POLICIES
    with ControlPlane() as control_plane, RawClient(control_plane.connection()) as admin:
        prepare(control_plane, admin)
        with recording(control_plane, admin, resource.group, [resource.plural]) as reviews:
            probe = resource.object(CASES[0].name, NAMESPACE)
            change = {"metadata": {"annotations": {"example.org/probe": None}}}
            wait_until(lambda: admin.patch(probe, change).expect(200) and bool(reviews), "the webhook is asked")
            reviews.clear()
            for case in CASES:
                with RawClient(control_plane.connection(case.user, ())) as client:
                    case.send(client).expect(200, 201)
    REVIEWS.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        write_review(REVIEWS / f"{case.name}.json", reviews[case.name])


def _install(admin: RawClient, port: int, authority: bytes, group: str, resources: Sequence[str]) -> None:
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": list(resources),
        "operations": ["CREATE", "UPDATE"],
    }
    webhook = {
        "name": "recorder.example.org",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": base64.b64encode(authority).decode()},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "recorder"},
        "webhooks": [webhook],
    }
    admin.post(_WEBHOOKS, body).expect(201)


if __name__ == "__main__":
    main()
