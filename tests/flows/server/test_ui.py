"""A person's day in Prefect's UI: headless Chromium, a live server, a process worker, the real demo study (shrunk).

Open the deployment, fill the form, start; the budget parks it; resume it from the UI; watch it finish; see its report.
`VARBAND_SCREENSHOTS=docs/images` keeps the pictures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.artifacts.store import Store
from storage.records.runs import all_runs
from tests.prefect_ui import UI, browser
from tests.servers import Server, postgres, prefect_server

pytestmark = pytest.mark.slow

#: The demo, small enough for a minute on one core.
SHRUNK = {
    "pool.synthetic": "8",
    "pool.heldout_per_source": "2",
    "training.steps": "2",
    "training.groups_per_step": "2",
    "training.eval_every": "2",
    "hardware.batch_size": "32",
    "passk.draws": "200",
}
#: As forms have it.
SMALL = {
    "profile": "demo",
    "arms": ["panel"],
    "engine": "transformers",
    "settings": [{"field": field, "value": value} for field, value in SHRUNK.items()],
}
PATIENCE = 900.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ui")
    with postgres() as database, prefect_server(folder, database) as up:
        up.varband("server", "deploy")
        up.worker("cpu", "cpu-1")
        yield up


def test_a_study_is_started_parked_resumed_and_finished_in_the_ui(server: Server, tmp_path: Path) -> None:
    shots = Path(os.environ.get("VARBAND_SCREENSHOTS", tmp_path))
    with browser(server.url, server.password) as ui:
        ui.open_custom_run("experiment")
        ui.choose("Engine", "transformers")
        ui.choose("Arms", "panel")
        ui.number("Tokens", "9000")
        ui.shot(shots / "ui-form.png", height=3000)  # all of it, while no settings are there
        ui.add_settings(SHRUNK)
        run = ui.submit()
        ui.wait_for_state("Suspended", PATIENCE)
        ui.shot(shots / "ui-parked.png")
        parked = all_runs(server.root)[0]
        assert parked.state == "parked" and "tokens more are missing" in parked.why
        assert 0 < parked.spent.tokens <= 9000, "the wall was crossed"
        ui.fill_resume(Tokens="5000000")
        ui.shot(shots / "ui-resume.png")
        ui.resume()
        ui.open_run(run)
        ui.wait_for_state("Completed", PATIENCE)
        ui.shot(shots / "ui-finished.png")
        _open_artifacts(ui)
        ui.shot(shots / "ui-artifacts.png")
    finished = all_runs(server.root)[0]
    assert (finished.id, finished.state) == (parked.id, "finished")
    assert finished.spent.tokens > parked.spent.tokens
    assert len(Store(server.root).refs("report")) == 1


def _open_artifacts(ui: UI) -> None:
    ui.page.get_by_text("Artifacts", exact=True).last.click()
    ui.page.get_by_text("report", exact=False).first.wait_for()
