"""Commands that work when every API server is down: ``ssh-sign`` and ``krl``.

They read files and write files, and import nothing of Kubernetes: `.importlinter` forbids it, and
:mod:`signer.entry` starts them without the rest of the controller. They need no package of the extra ``controller``.

Exit codes: 0 success; 1 failure at run time; 2 wrong usage, or an input that is refused. ``ssh-sign --exec``: the exit
code of ``ssh``. All commands: 74 standard output cannot be written, 130 interrupted, 141 broken pipe.
"""
