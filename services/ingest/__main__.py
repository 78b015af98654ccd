from kbmesh.process import run

if __name__ == "__main__":
    # Here, because the child processes of the extractor run this module too, and need none of it.
    from services.ingest.bootstrap import bootstrap
    from services.ingest.settings import IngestSettings

    run("ingest", IngestSettings, bootstrap)
