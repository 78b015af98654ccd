"""What the gRPC servers and clients of the services have in common."""

from kbmesh.rpc.channel import ChannelSettings, open_blocking_channel, open_channel
from kbmesh.rpc.interceptor import current_principal, failure_of, forwarded_metadata, metadata_for
from kbmesh.rpc.server import GrpcServer, GrpcSettings, serve

__all__ = [
    "ChannelSettings",
    "GrpcServer",
    "GrpcSettings",
    "current_principal",
    "failure_of",
    "forwarded_metadata",
    "metadata_for",
    "open_blocking_channel",
    "open_channel",
    "serve",
]
