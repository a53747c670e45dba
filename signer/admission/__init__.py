"""Admission policies: renders, installs, proves and removes ``ValidatingAdmissionPolicy`` objects.

A policy is an early answer for people, never a check that the controller relies on: an API server may not serve such
policies, its cache of them is late by seconds, and an administrator can delete them. The controller repeats each check.
A part of the controller owns its policies; this package knows none of them.

See Kubernetes, "Validating Admission Policy".
"""
