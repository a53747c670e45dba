"""``python -m signer.cli``."""

import sys

from signer.cli import main

sys.exit(main())
