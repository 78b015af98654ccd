"""How well search finds, on collections with judged answers and on a set of its own for provenance."""
