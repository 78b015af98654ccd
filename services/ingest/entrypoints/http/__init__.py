"""The gateway: knowledge bases and documents over HTTP."""

from services.ingest.entrypoints.http.app import Gateway, create_app

__all__ = ["Gateway", "create_app"]
