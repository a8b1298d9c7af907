"""A wheel of this project in an environment of its own: one name at its top, and the command works from any folder."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests import mini

REPO = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = ["wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(folder), str(REPO)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=300)
    (made,) = folder.glob("varband-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel; of this one's packages it sees all but the editable checkout."""
    home = tmp_path_factory.mktemp("installed") / "env"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    words = ["--python", str(python), "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=300)
    site = next(home.glob("lib/python*/site-packages"))
    assert {p.name.split("-")[0] for p in site.iterdir()} == {"varband"}
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return home / "bin"


def ask(program: Path, *words: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(program), *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_has_one_name_and_every_file_of_the_rooms(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"varband"}
    rooms = ["cli", "dashboards", "flows", "storage", "tasks", "models", "claims.toml", "deploy/pools", "deploy/slurm"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", *rooms], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout
    there = {name.removeprefix("varband/rooms/") for name in names if name.startswith("varband/rooms/")}
    assert len(there) > 200
    assert {name for name in listed.split("\0") if name and (REPO / name).is_file()} == there


def test_nothing_but_varband_is_importable_until_it_is_imported(installed: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.util import find_spec; rooms = ['cli', 'dashboards', 'flows', 'storage', 'tasks']\n"
        "print([room for room in rooms if find_spec(room)]); import varband\n"
        "print(all('varband/rooms' in find_spec(room).origin for room in rooms))\n"
        "from storage.artifacts.manifest import code_here; print(code_here())"
    )
    assert ask(installed / "python", "-c", code, cwd=tmp_path).splitlines() == ["[]", "True", "release 0.1.0"]


def test_the_demo_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """Its arms in a process each, so that children find the rooms too; queries, templates and model are the wheel's."""
    sets = [word for setting in (*mini.SETTINGS, "hardware.arms_at_once=2") for word in ("--set", setting)]
    assert "stages" in ask(installed / "varband", "plan", "demo", *sets, cwd=tmp_path)
    said = ask(installed / "varband", "run", "demo", *sets, cwd=tmp_path)
    assert "stages made" in said
    assert "no run yet" not in ask(installed / "varband", cwd=tmp_path)
    ask(installed / "varband", "report", cwd=tmp_path)
    assert list(tmp_path.glob("report-*.html"))
    assert {p.name for p in tmp_path.iterdir() if not p.name.startswith("report-")} == {".varband"}
