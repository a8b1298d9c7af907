"""deploy/Dockerfile and compose.yaml without Docker: stages, sources, locks, users and commands are compared with the
tree, and the steps of the target `cpu` run in a clean Debian 12."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import click
import pytest
import yaml

from cli.main import varband
from tests.needs import lacks

REPO = Path(__file__).resolve().parent.parent
DOCKERFILE, COMPOSE = REPO / "deploy" / "Dockerfile", REPO / "deploy" / "compose.yaml"
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
#: What the build context has: .dockerignore leaves out everything but these.
SENT = [line[1:] for line in (REPO / ".dockerignore").read_text().splitlines() if line.startswith("!")]


class Step(NamedTuple):
    word: str
    rest: str


def stages() -> dict[str, list[Step]]:
    """The instructions of each stage, after those of the stage that it starts from."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found, name = dict[str, list[Step]](), ""
    for line in filter(None, text.splitlines()):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            source, name = rest.split(" AS ")
            assert source in found or ":" in source, f"{source} is neither a stage nor an image with a tag"
            found[name] = [*found.get(source, [])]
        else:
            found[name].append(Step(word, rest))
    return found


def test_what_is_copied_is_there_and_is_sent() -> None:
    for name, steps in stages().items():
        for step in steps:
            if step.word == "COPY":
                *sources, _ = step.rest.split()
                for source in sources:
                    assert source == "." or ((REPO / source).exists() and source in SENT), f"{name}: {source}"
    assert all((REPO / path).exists() for path in SENT)


@pytest.mark.parametrize(("stage", "lock"), [("cpu", "linux-x86_64.lock"), ("cuda", "linux-x86_64-cuda.lock")])
def test_a_target_installs_its_lock_with_hashes_and_runs_as_another_user(stage: str, lock: str) -> None:
    steps = stages()[stage]
    [make] = [shlex.split(step.rest) for step in steps if step.word == "RUN" and step.rest.startswith("make ")]
    dry = subprocess.run([*make, "--dry-run"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"requirements/{re.escape(lock)} .*--require-hashes", dry)
    assert {f"requirements/{name}" for name in re.findall(r"requirements/([\w-]+\.lock)", dry)} >= {
        f"requirements/{lock}"
    }
    assert [step.rest for step in steps if step.word == "USER"] == ["10001"]
    assert "USER" not in [step.word for step in steps[: [s.word for s in steps].index("COPY")]], "it installs as root"
    # a shell between Docker and varband would keep SIGTERM and the exit code 75 to itself
    last = {step.word: step.rest for step in steps}
    assert json.loads(last["ENTRYPOINT"]) == ["varband"] and "varband" in PROJECT["scripts"]
    assert json.loads(last["CMD"]) == ["--help"]
    assert not [step for step in steps if step.word == "RUN" and ";" in step.rest], "a failed step must stop the build"


def test_packages_beside_a_lock_have_the_versions_of_their_extras() -> None:
    extras = {one for listed in PROJECT["optional-dependencies"].values() for one in listed}
    beside = set(re.findall(r"[\w-]+==[\w.]+", DOCKERFILE.read_text()))
    assert beside and beside <= extras


def test_services_start_commands_that_exist_from_stages_that_exist() -> None:
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    ours = {name: one for name, one in services.items() if "VARBAND_IMAGE" in one["image"]}
    for name, service in ours.items():
        command: Any = varband
        for word in service["command"] if "entrypoint" not in service else ():
            if isinstance(command, click.Group) and not word.startswith("-"):
                command = command.get_command(click.Context(command), word)
        assert command and ("entrypoint" in service or not isinstance(command, click.Group)), name
        if build := service.get("build"):
            assert (COMPOSE.parent / build["context"] / build["dockerfile"]).samefile(DOCKERFILE)
            assert build["target"] in stages()
        assert {*service.get("depends_on", {})} <= {*services}


def copy_context(folder: Path) -> None:
    """Copy the files that .dockerignore sends to the build."""
    listed = subprocess.run(["git", "ls-files", "-z", *SENT], cwd=REPO, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, folder / name)


@pytest.mark.slow
def test_what_the_image_gets_builds_the_whole_package(tmp_path: Path) -> None:
    copy_context(tmp_path / "context")
    names = []
    for source in (tmp_path / "context", REPO):
        folder = tmp_path / f"wheel-{source.name}"
        words = ["wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(folder), str(source)]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=300)
        [wheel] = folder.glob("varband-*.whl")
        names.append({*zipfile.ZipFile(wheel).namelist()})
    assert names[0] == names[1]


class CleanRoot:
    """A Debian 12 in a folder, in which the instructions of a Dockerfile run. It takes the host's certificates and the
    folder PIP_FIND_LINKS, so that it installs packages from where the host does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.user, self.workdir = folder, "0", "/"
        self.environment = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.environment |= {"HOME": "/root", "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        # the image `python` has the headers of python3-dev too; vLLM compiles against them
        packages = "--include=ca-certificates,python3-dev,python3-venv"
        subprocess.run(["debootstrap", "--variant=minbase", packages, "bookworm", str(folder)], check=True)
        for path in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
            shutil.copy(path, self.inside(path))
        self.inside("/dev/shm").mkdir(exist_ok=True)
        self.inside("/dev/shm").chmod(0o1777)
        if links := os.environ.get("PIP_FIND_LINKS"):
            shutil.copytree(links, self.inside(links))

    def inside(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def run(self, command: str) -> str:
        """Run a shell command as the current user, and return what it prints."""
        enter = ["unshare", "--pid", "--fork", f"--mount-proc={self.inside('/proc')}", "sh", "-ec"]
        system = 'mount --rbind /sys "$0/sys"; exec chroot "$@"'
        words = [*enter, system, str(self.folder), f"--userspec={self.user}:{self.user}", str(self.folder), "sh", "-c"]
        inside = f"cd {self.workdir} && {command}"
        print("RUN", inside, flush=True)
        done = subprocess.run([*words, inside], env=self.environment, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def follow(self, step: Step) -> None:
        if step.word == "RUN":
            self.run(step.rest)
        elif step.word == "ENV":
            for word in shlex.split(step.rest):
                name, value = word.split("=", 1)
                self.environment[name] = Template(value).substitute(self.environment)
        elif step.word == "ARG":
            self.environment[step.rest] = "0123456789ab"
        elif step.word == "USER":
            self.user = step.rest
            self.environment["HOME"] = self.run("getent passwd $(id -u) | cut -d: -f6").strip()
        elif step.word == "WORKDIR":
            self.workdir = step.rest
            self.inside(self.workdir).mkdir(parents=True, exist_ok=True)
        elif step.rest == ". .":
            copy_context(self.inside(self.workdir))
        elif step.word == "COPY":
            source, target = step.rest.split()
            copy = shutil.copytree if (REPO / source).is_dir() else shutil.copy
            copy(REPO / source, self.inside(self.workdir) / target)


@pytest.mark.slow
def test_the_steps_of_the_target_cpu_run_in_a_clean_root(tmp_path: Path) -> None:
    """The whole build, then the demo study as the image's user. Takes eight minutes, and 5 GB of disk."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        lacks("debootstrap", "no root or no debootstrap: apt-get install debootstrap")
    image = CleanRoot(tmp_path / "root")
    for step in stages()["cpu"]:
        image.follow(step)
    assert "10001" in image.run("id")
    assert "run a study" in image.run("varband --help").lower()
    image.run("varband run demo")
    assert '"reused"' in image.run("varband plan demo --json")
