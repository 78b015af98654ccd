"""What the HTTP servers of the services have in common."""

from kbmesh.http.server import HttpSettings, Tracing, serve_http
from kbmesh.http.status import headers_of, status_of

__all__ = ["HttpSettings", "Tracing", "headers_of", "serve_http", "status_of"]
