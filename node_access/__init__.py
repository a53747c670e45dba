"""Sessions of node access on a node: which principals count, and when a session ends.

A program of its own that runs as root, beside sshd. It needs the standard library and ``attestors.wire``.

``requests``, ``principals`` and ``rules`` decide, and know no files, clocks or processes. ``machine``, with
``processes``, ``control_groups`` and ``terminals``, is the kernel's view; ``node_files`` and ``records`` are files.
``registry`` composes these, ``daemon`` is the event loop, and ``cli`` the command line.
"""
