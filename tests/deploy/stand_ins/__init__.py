"""Stand-ins for programs of a machine in a scratch root. Each records its calls."""
