"""The management cluster's side: a mirror of what decisions read, and the atomic writes of reservations and journal."""
