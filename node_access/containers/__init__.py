"""SSH into the containers of a node, under the containers' own confinement: the agent that runs as root.

It needs the standard library and the grammar of container names. ``finding`` reads what containerd says about its
containers, ``users`` gives each of them a user of sshd, ``protocol`` is what the unprivileged program of a session may
ask for, and ``tools``, ``running`` and ``connecting`` do it. ``session`` is one session, ``waiting`` the process that
waits for it, ``agent`` all of them.
"""
