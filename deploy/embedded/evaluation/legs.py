"""The legs of search one at a time. KbSearch always fuses them, so they are asked where it gets them from."""

from collections.abc import Sequence
from uuid import UUID

from pydantic import SecretStr

from deploy.embedded.evaluation.asking import Filled, few_at_once
from deploy.embedded.evaluation.baselines import Vectors
from deploy.embedded.evaluation.measures import Run
from kbmesh.auth import LOCAL_PRINCIPAL
from kbmesh.postgres import PostgresSettings, open_pool
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.ranking import Candidate
from services.search.domain.retrieval import EXACT_UP_TO, QueryVector, Scan, Visibility, choose_scan


async def ask_legs(dsn: str, filled: Filled, queries: dict[str, str], vectors: Vectors) -> dict[str, Run]:
    """Files that the vector and the keyword leg find, each where its first passage stands. `vectors` are those of
    `queries`, in their order."""
    visible = Visibility(LOCAL_PRINCIPAL.sub, kb_ids=frozenset({UUID(filled.kb_id)}))
    settings = PostgresSettings(dsn=SecretStr(dsn))
    async with open_pool(settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        store = PostgresPassages(pool)
        space = await store.active_space()
        if space is None:
            raise RuntimeError("nothing has been embedded")
        scan: Scan = choose_scan(await store.count_chunks(visible, at_most=EXACT_UP_TO + 1))

        async def files(candidates: Sequence[Candidate]) -> list[str]:
            ranked = sorted(candidates, key=lambda one: (-one.similarity, one.chunk_id))
            passages = await store.passages([one.chunk_id for one in ranked], visible)
            by_chunk = {passage.chunk_id: filled.files[str(passage.document_id)] for passage in passages}
            return list(dict.fromkeys(by_chunk[one.chunk_id] for one in ranked))

        async def by_vector(values: Sequence[float]) -> list[str]:
            return await files(await store.by_vector(QueryVector(tuple(values), space.id), space, visible, scan))

        async def by_keywords(text: str) -> list[str]:
            return await files(await store.by_keywords(text, visible, scan))

        nearest = await few_at_once(by_vector, vectors.tolist())
        matching = await few_at_once(by_keywords, list(queries.values()))
    return {
        "vector": dict(zip(queries, nearest, strict=True)),
        "keyword": dict(zip(queries, matching, strict=True)),
    }
