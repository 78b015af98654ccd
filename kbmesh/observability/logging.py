import logging
import sys
from traceback import extract_tb
from typing import Any, TextIO

import structlog
from opentelemetry import trace
from structlog.processors import ExceptionRenderer
from structlog.typing import EventDict, Processor, WrappedLogger

from kbmesh.errors import KbmeshError


def configure_logging(service: str, level: str = "info", stream: TextIO | None = None) -> None:
    """JSON lines from this project and its libraries alike, with the ids of the trace, on `stream` or stdout."""
    structlog.contextvars.bind_contextvars(service=service)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                ExceptionRenderer(lambda exc_info: _chain(exc_info[1])),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for noisy in ("aiokafka", "httpx", "mcp", "unstructured", "pdfminer"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _chain(error: BaseException | None) -> list[dict[str, Any]]:
    """An error and what it came from: types and places. The messages of libraries are left out, and the values of
    variables: they may quote a document."""
    errors: list[dict[str, Any]] = []
    while error is not None:
        frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in extract_tb(error.__traceback__)]
        errors.append({"type": f"{type(error).__module__}.{type(error).__qualname__}", "frames": frames})
        if isinstance(error, KbmeshError | OSError):
            errors[-1]["message"] = str(error)
        if isinstance(error, BaseExceptionGroup):
            errors[-1]["errors"] = [_chain(member) for member in error.exceptions]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return errors


def _add_trace(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
    return event
