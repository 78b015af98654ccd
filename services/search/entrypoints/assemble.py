from datetime import UTC, datetime
from typing import Final

from kbmesh.rpc import current_principal
from kbmesh.search.v1 import assemble_pb2 as pb
from services.search import handlers
from services.search.domain.assembly import AssemblyQuery, Strategy, parse_assembly_query
from services.search.domain.packing import Entry, Outcome, tokens_of
from services.search.domain.receipt import Assembly, ScopeReport, StrategyStatus
from services.search.domain.retrieval import Visibility
from services.search.ports import ContextStore, QueryEmbedder, RecordSource, SkillSource

_STRATEGIES: Final = {
    Strategy.DIRECT: pb.STRATEGY_DIRECT,
    Strategy.SKILLS: pb.STRATEGY_SKILLS,
    Strategy.RETRIEVAL: pb.STRATEGY_RETRIEVAL,
}
_OUTCOMES: Final = {
    Outcome.INCLUDED: pb.OUTCOME_INCLUDED,
    Outcome.SHORTENED: pb.OUTCOME_SHORTENED,
    Outcome.DUPLICATE: pb.OUTCOME_DUPLICATE,
    Outcome.OVER_BUDGET: pb.OUTCOME_OVER_BUDGET,
}
_STATUSES: Final = {
    StrategyStatus.OK: pb.STRATEGY_STATUS_OK,
    StrategyStatus.DEGRADED: pb.STRATEGY_STATUS_DEGRADED,
    StrategyStatus.FAILED: pb.STRATEGY_STATUS_FAILED,
    StrategyStatus.NOT_CONFIGURED: pb.STRATEGY_STATUS_NOT_CONFIGURED,
}


async def assemble_context(
    request: pb.AssembleContextRequest,
    *,
    store: ContextStore,
    records: RecordSource,
    skills: SkillSource | None,
    embedder: QueryEmbedder,
    remaining_s: float,
) -> pb.AssembleContextResponse:
    query = _query(request)
    principal = current_principal()
    assembly = await handlers.assemble_context(
        query,
        Visibility(principal.sub, principal.teams),
        store=store,
        records=records,
        skills=skills,
        embedder=embedder,
        remaining_s=remaining_s,
        now=datetime.now(UTC),
    )
    return pb.AssembleContextResponse(
        system_overlay=assembly.packed.overlay,
        formatted=assembly.packed.text,
        sections=[
            pb.ContextSection(strategy=_STRATEGIES[section.strategy], name=section.name, text=text)
            for section, text in assembly.packed.sections
        ],
        receipt=_receipt(assembly),
        degraded=assembly.degraded,
    )


def _query(request: pb.AssembleContextRequest) -> AssemblyQuery:
    given = {field.name: value for field, value in request.budgets.ListFields()}
    return parse_assembly_query(
        request.question,
        request.intent,
        persona=request.persona if request.HasField("persona") else None,
        channel_id=request.channel_id,
        **given,
    )


def _receipt(assembly: Assembly) -> pb.Receipt:
    return pb.Receipt(
        entries=map(_entry, assembly.packed.entries),
        strategies=[
            pb.StrategyReport(
                strategy=_STRATEGIES[report.strategy],
                status=_STATUSES[report.status],
                reason=report.reason,
                milliseconds=report.milliseconds,
                characters=assembly.characters_of(report.strategy),
            )
            for report in assembly.strategies
        ],
        scopes=map(_scope, assembly.scopes),
        relaxed=assembly.relaxed,
        max_chars=assembly.max_chars,
        overlay_characters=len(assembly.packed.overlay),
        framing_characters=assembly.packed.framing,
        characters=assembly.characters,
        tokens=tokens_of(assembly.characters),
    )


def _entry(entry: Entry) -> pb.ReceiptEntry:
    item = entry.item
    return pb.ReceiptEntry(
        strategy=_STRATEGIES[item.section.strategy],
        section=item.section.name,
        kind=item.kind,
        source_id=item.source_id,
        chunk_id="" if item.chunk_id is None else str(item.chunk_id),
        title=item.title,
        label=item.label,
        score=item.score,
        characters=entry.characters,
        tokens=None if entry.characters is None else tokens_of(entry.characters),
        outcome=_OUTCOMES[entry.outcome],
    )


def _scope(report: ScopeReport) -> pb.ScopeReport:
    return pb.ScopeReport(
        scope=report.scope,
        top_k=report.top_k,
        min_score=report.min_score,
        found=report.found,
        below_floor=report.below_floor,
        beyond_top_k=report.beyond_top_k,
    )
