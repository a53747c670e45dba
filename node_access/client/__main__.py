"""``python -m node_access.client``: the background process is started so, and the one file of ``archive`` is this."""

import sys

try:
    from node_access.client.cli import main
except ModuleNotFoundError as error:
    # 255 as for every failure of ssh's: 1 would look like the remote command's.
    print(f"node-access: error: {error}: install it with pip, such as cryptography", file=sys.stderr)
    sys.exit(255)

if __name__ == "__main__":
    sys.exit(main())
