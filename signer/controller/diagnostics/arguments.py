"""Flags of every program that serves metrics and health, and logs."""

from __future__ import annotations

import argparse


def add_diagnostics_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for diagnostics, health and the form of logs."""
    parser.add_argument(
        "--diagnostics-address",
        default="",
        metavar="HOST:PORT",
        help="serve /metrics over HTTPS, to users that the management cluster allows to get that path (default: off)",
    )
    parser.add_argument(
        "--insecure-diagnostics",
        action="store_true",
        help="serve /metrics, /healthz and /readyz on --diagnostics-address over plain HTTP, without authentication",
    )
    parser.add_argument(
        "--health-addr",
        default="",
        metavar="HOST:PORT",
        help="serve /healthz and /readyz over plain HTTP (default: off)",
    )
    parser.add_argument(
        "--logging-format", choices=("json", "text"), default=None, help="default: text on a terminal, else json"
    )
