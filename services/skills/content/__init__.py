"""The curated skills. A module registers its skill when it is imported; a new one is added to this list."""

from services.skills.content import databricks_sql_patterns

__all__ = ["databricks_sql_patterns"]
