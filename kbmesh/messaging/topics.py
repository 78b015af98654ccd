from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topics:
    """Names of the topics; docs/architecture.md says what each carries."""

    prefix: str

    @property
    def documents(self) -> str:
        return f"{self.prefix}.documents.v1"

    @property
    def chunks(self) -> str:
        return f"{self.prefix}.chunks.v1"

    @property
    def records(self) -> str:
        return f"{self.prefix}.records.v1"

    @property
    def status(self) -> str:
        return f"{self.prefix}.status.v1"

    @staticmethod
    def dead_letter(topic: str) -> str:
        return f"{topic}.dlq"
