from kbmesh.process import run
from services.embedder.bootstrap import bootstrap
from services.embedder.settings import EmbedderSettings

if __name__ == "__main__":
    run("embedder", EmbedderSettings, bootstrap)
