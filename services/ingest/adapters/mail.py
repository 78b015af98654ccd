"""A saved mail: its headers as a person reads them, and its body."""

from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from pathlib import Path

from services.ingest.domain.encoding import decode_html, decode_text
from services.ingest.domain.extraction import Part

_HEADERS = ("From", "To", "Cc", "Date")


@dataclass(frozen=True, slots=True)
class Mail:
    head: tuple[Part, ...]
    body: str
    is_html: bool


def read_mail(path: Path) -> Mail:
    """Attachments are named, not read: whoever wants them found uploads them as documents."""
    message = message_from_bytes(path.read_bytes(), policy=policy.default)
    lines = [f"{name}: {message[name]}" for name in _HEADERS if message[name]]
    if names := _attachments(message):
        lines.append(f"Attachments: {', '.join(names)}")
    head = (Part("heading", str(message["Subject"] or ""), level=1), Part("text", "\n".join(lines)))
    body = message.get_body(("html", "plain"))
    if body is None:
        return Mail(head, "", False)
    is_html = body.get_content_subtype() == "html"
    return Mail(head, _text(body, is_html), is_html)


def _attachments(message: EmailMessage) -> list[str]:
    parts = (part for part in message.walk() if part.get_content_disposition() == "attachment")
    return [name for part in parts if (name := part.get_filename())]


def _text(part: MIMEPart, is_html: bool) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    charset = part.get_content_charset("us-ascii")
    if charset != "us-ascii":
        try:
            return data.decode(charset, "replace")
        except (LookupError, ValueError):
            pass
    return decode_html(data) if is_html else decode_text(data)
