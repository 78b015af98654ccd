"""Logs and traces, alike in every process."""

from kbmesh.observability.logging import configure_logging

__all__ = ["configure_logging"]
