from kbmesh.process import run
from services.skills.bootstrap import bootstrap
from services.skills.settings import SkillsSettings

if __name__ == "__main__":
    run("skills", SkillsSettings, bootstrap)
