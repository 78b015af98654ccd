import argparse
import importlib
from typing import Final

from deploy.embedded.benchmarks.report import quiet_logs

NAMES: Final = (
    "encoding",
    "consumer",
    "pipeline",
    "vectors",
    "query",
    "search",
    "gpu",
    "extraction",
    "upload",
    "fairness",
    "skills",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded.benchmarks")
    parser.add_argument(
        "name", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all of them if none is given"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller and once: shows that it works, measures little"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    quiet_logs()
    for name in arguments.name or NAMES:
        # Only now: the child process of the extractor begins as a copy of this module, without torch.
        importlib.import_module(f"deploy.embedded.benchmarks.{name}").bench(quick=arguments.quick)


if __name__ == "__main__":
    main()
