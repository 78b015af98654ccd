"""A producer of records: hands the files of examples/records to RecordsService.

    python -m examples.publish_records                                   # every record, by itself
    python -m examples.publish_records --kind use_case --generation 1    # instead of all there is of the kind
    python -m examples.publish_records --kind use_case --delete uc:bill-shock-warning

A file is named for its kind. Where authentication is on, KBMESH_TOKEN is a token with the role `records`.
"""

import argparse
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from kbmesh.events.v1.records_pb2 import GenerationSealed, RecordDeleted, RecordUpserted
from kbmesh.records.v1.records_pb2 import DeleteRecordsRequest, SealGenerationRequest, UpsertRecordsRequest
from kbmesh.records.v1.records_pb2_grpc import RecordsServiceStub
from kbmesh.rpc import ChannelSettings, metadata_for, open_blocking_channel

FOLDER: Final = Path(__file__).parent / "records"
TIMEOUT_S: Final = 10


def read_records(path: Path, generation: int = 0) -> list[RecordUpserted]:
    """The records of a file. Without a revision, each gets the time of the server: the last to be sent counts."""
    return [_record(path.stem, generation, **entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8"))]


def _record(
    kind: str,
    generation: int,
    *,
    source_id: str,
    title: str,
    content: str,
    metadata: dict[str, Any],
    valid_until: datetime | None = None,
) -> RecordUpserted:
    record = RecordUpserted(kind=kind, source_id=source_id, title=title, content=content, generation=generation)
    record.metadata.update(metadata)
    if valid_until is not None:
        record.valid_until.FromDatetime(valid_until.astimezone(UTC))
    return record


def publish(target: str, paths: Iterable[Path], generation: int = 0, authorization: str | None = None) -> int:
    """How many records were accepted; with a generation they replace all others of their kinds."""
    with open_blocking_channel(ChannelSettings(target=target)) as channel:
        service, metadata = RecordsServiceStub(channel), metadata_for(authorization)
        accepted = 0
        for path in paths:
            records = read_records(path, generation)
            answer = service.UpsertRecords(
                UpsertRecordsRequest(records=records), timeout=TIMEOUT_S, metadata=metadata
            )
            accepted += answer.accepted
            if generation:
                seal = GenerationSealed(kind=path.stem, generation=generation, record_count=len(records))
                service.SealGeneration(SealGenerationRequest(seal=seal), timeout=TIMEOUT_S, metadata=metadata)
    return accepted


def delete(target: str, kind: str, source_ids: Iterable[str], authorization: str | None = None) -> int:
    """How many deletions were accepted."""
    records = [RecordDeleted(kind=kind, source_id=source_id) for source_id in source_ids]
    with open_blocking_channel(ChannelSettings(target=target)) as channel:
        answer = RecordsServiceStub(channel).DeleteRecords(
            DeleteRecordsRequest(records=records), timeout=TIMEOUT_S, metadata=metadata_for(authorization)
        )
    return answer.accepted


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.publish_records",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    parser.add_argument("--target", default="127.0.0.1:50054", help="RecordsService (default: %(default)s)")
    parser.add_argument("--kind", choices=kinds, help="of this kind only")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--generation", type=int, default=0, metavar="N", help="higher than the last one")
    what.add_argument("--delete", nargs="+", metavar="SOURCE_ID", help="takes --kind")
    arguments = parser.parse_args()
    token = os.environ.get("KBMESH_TOKEN")
    authorization = f"Bearer {token}" if token else None
    if arguments.delete:
        if arguments.kind is None:
            parser.error("--delete takes --kind")
        accepted = delete(arguments.target, arguments.kind, arguments.delete, authorization)
    else:
        paths = [FOLDER / f"{kind}.yaml" for kind in kinds if arguments.kind in (None, kind)]
        accepted = publish(arguments.target, paths, arguments.generation, authorization)
    print(f"{accepted} accepted")


if __name__ == "__main__":
    main()
