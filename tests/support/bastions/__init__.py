"""Fakes of the clouds of bastion providers, for the suite of their contract."""
