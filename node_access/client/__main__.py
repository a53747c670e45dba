"""``python -m node_access.client``: the background process is started so."""

import sys

from node_access.client.cli import main

if __name__ == "__main__":
    sys.exit(main())
