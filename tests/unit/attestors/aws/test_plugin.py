"""What the entry point names."""

from __future__ import annotations

import subprocess
import sys

from attestors.aws import plugin
from attestors.contract import Attestor, Security
from attestors.registry import Registry
from tests.support.fake_instance_metadata import Instance


def test_found_by_its_name() -> None:
    assert Registry().load("aws") is plugin


def test_description() -> None:
    attestor: Attestor = plugin
    assert attestor.description.security is Security.SECURE
    assert attestor.description.evidence_versions == ("v1",)
    assert attestor.description.renews
    assert attestor.description.serves


def test_light_to_import() -> None:
    """A controller without an AWS cluster, and a node that has its certificate, load no library of AWS's."""
    program = (
        "import sys\nfrom attestors.registry import Registry\nRegistry().load('aws')\n"
        "print([name for name in ('boto3', 'botocore', 'cryptography', 'urllib3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_fake_instance_keeps_its_secrets_out_of_test_reports() -> None:
    instance = Instance()
    assert instance.secret_access_key not in repr(instance)
    assert instance.session_token not in repr(instance)
