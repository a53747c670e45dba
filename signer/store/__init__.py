"""The management cluster: a cache of all that decisions read, and the atomic writes of reservations and journal."""
