from kbmesh.process import run
from services.ingest.bootstrap import bootstrap
from services.ingest.settings import IngestSettings

if __name__ == "__main__":
    run("ingest", IngestSettings, bootstrap)
