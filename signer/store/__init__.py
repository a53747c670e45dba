"""The management cluster's side: a cache of what decisions read, and the atomic writes of reservations and journal."""
