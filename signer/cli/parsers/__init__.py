"""The parsers of the commands. They import nothing that only a running command needs: `.importlinter` forbids it."""
