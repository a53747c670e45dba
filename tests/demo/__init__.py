"""``make demo``: four machines ask to join, on the embedded API; only the honest one gets a certificate."""
