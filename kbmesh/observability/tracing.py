"""W3C trace context, carried from the caller through Kafka to the last worker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()
_tracer = TracerProvider().get_tracer("kbmesh")


def inject() -> dict[str, str]:
    """Headers (`traceparent`, `tracestate`) that continue the current trace; empty outside of one."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier


@contextmanager
def serving(headers: Mapping[str, str], name: str) -> Iterator[None]:
    """A span for a request, in the caller's trace if `headers` name one, else in a new one."""
    with _tracer.start_as_current_span(name, _propagator.extract(headers), kind=SpanKind.SERVER):
        yield


@contextmanager
def consuming(headers: Mapping[str, bytes], name: str) -> Iterator[None]:
    """A span for a message, in the trace that its headers name."""
    carrier = {key: raw.decode("ascii", "replace") for key, raw in headers.items() if key.startswith("trace")}
    with _tracer.start_as_current_span(name, _propagator.extract(carrier), kind=SpanKind.CONSUMER):
        yield


def current_trace_id() -> str | None:
    """Hexadecimal id of the current trace."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None
