from services.search.handlers.assemble import assemble_context
from services.search.handlers.context import retrieve_context
from services.search.handlers.legs import MAX_TRIES
from services.search.handlers.search import kb_search

__all__ = ["MAX_TRIES", "assemble_context", "kb_search", "retrieve_context"]
