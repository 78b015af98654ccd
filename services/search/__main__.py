from kbmesh.process import run
from services.search.bootstrap import bootstrap
from services.search.settings import SearchSettings

if __name__ == "__main__":
    run("search", SearchSettings, bootstrap)
