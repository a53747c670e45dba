"""As much of AWS as a node and the controller need, on 127.0.0.1.

STS and the issuer of web identity tokens are ours: moto checks no signatures, and these do. EC2 and IAM are moto's.
"""

from __future__ import annotations

from .accounts import ISSUER_HOST, Session
from .cloud import FakeAWS
from .ec2 import FakeEC2
from .instances import EC2Instance, FakeAccount
from .sts import Answer

__all__ = ["ISSUER_HOST", "Answer", "EC2Instance", "FakeAWS", "FakeAccount", "FakeEC2", "Session"]
