"""Kafka for the services: topics, CloudEvents, the outbox, and at-least-once consumers."""

from kbmesh.messaging.consumer import Consumer
from kbmesh.messaging.delivery import Delivery, Message
from kbmesh.messaging.events import Event, decode, headers_for, unpack
from kbmesh.messaging.outbox import enqueue
from kbmesh.messaging.processing import Dead, RetrySettings, run_batched, run_serial
from kbmesh.messaging.producer import Outgoing, Producer
from kbmesh.messaging.settings import KafkaSettings
from kbmesh.messaging.topics import Topics

__all__ = [
    "Consumer",
    "Dead",
    "Delivery",
    "Event",
    "KafkaSettings",
    "Message",
    "Outgoing",
    "Producer",
    "RetrySettings",
    "Topics",
    "decode",
    "enqueue",
    "headers_for",
    "run_batched",
    "run_serial",
    "unpack",
]
