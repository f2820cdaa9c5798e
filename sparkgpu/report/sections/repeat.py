"""How to repeat the run: its configuration, the reasons for automatic choices, versions and fingerprints."""

from __future__ import annotations

from sparkgpu.report.inputs import Inputs


def content(run: Inputs) -> dict[str, object]:
    """The values of the templates."""
    configuration = run.paths.config
    return {
        "configuration": configuration.read_text(encoding="utf-8") if configuration.is_file() else "",
        "folder": str(run.paths.root),
        "source": run.schema.source,
        "fingerprint": run.schema.fingerprint,
        "started": run.results.run.started_at.replace("T", " ").replace("Z", " UTC"),
        "reasons": run.plan.reasons,
        "settings": run.settings_besides,
        "versions": {"sparkgpu": run.results.run.sparkgpu, **run.results.run.versions},
    }
