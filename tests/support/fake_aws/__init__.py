"""The parts of AWS that a node and the controller use, on 127.0.0.1.

EC2 and IAM are moto's. STS and the issuer of web identity tokens are written here, because moto verifies no signatures.
"""

from __future__ import annotations

from .accounts import ISSUER_HOST, Session
from .cloud import FakeAWS
from .ec2 import FakeEC2
from .instances import EC2Instance, FakeAccount
from .sts import Answer

__all__ = ["ISSUER_HOST", "Answer", "EC2Instance", "FakeAWS", "FakeAccount", "FakeEC2", "Session"]
