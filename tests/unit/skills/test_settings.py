import pytest

from services.skills.settings import SkillsSettings


def test_a_host_alone_leaves_the_port_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBMESH_SKILLS_POSTGRES__DSN", "postgresql://localhost/kbmesh")
    monkeypatch.setenv("KBMESH_SKILLS_AUTH__MODE", "off")
    monkeypatch.setenv("KBMESH_SKILLS_GRPC__HOST", "::1")

    settings = SkillsSettings()

    assert (settings.grpc.host, settings.grpc.port) == ("::1", 50053)
