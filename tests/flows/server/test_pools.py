"""Pools of containers: templates that Prefect and Kubernetes accept, and images that are compared by digest."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from flows.server.deployments import TEMPLATES, PoolTypes
from flows.server.workplace import Workplace
from storage.errors import UserError
from tests.chaos.server_faults import api, deployment, start, wait_for
from tests.servers import postgres, prefect_server

IMAGE = "registry.example/varband:cuda@sha256:" + "1" * 64


def test_workers_of_one_image_are_compared_by_its_digest() -> None:
    run = Workplace(host="a", code="1f", packages={}, image=IMAGE)
    assert not [*run.unlike(run.model_copy(update={"image": "registry.example/varband:cpu@sha256:" + "2" * 64}))]
    (said,) = run.unlike(run.model_copy(update={"image": IMAGE.replace("1" * 64, "2" * 64)}))
    assert said.startswith("image registry.example/varband:cuda@sha256:22")


@pytest.mark.parametrize(("types", "image"), [({"gpus": "docker"}, IMAGE), ({"gpu": "docker"}, "varband:latest")])
def test_a_pool_that_is_unknown_or_has_no_digest_is_refused(types: dict[str, str], image: str) -> None:
    with pytest.raises(UserError, match="deploy: "):
        PoolTypes(types, image)


def configured(kind: Any, of_type: str) -> Any:
    """The configuration of a job, as a worker makes it from the template and the deployment's variables."""
    from prefect.client.schemas.objects import FlowRun

    template = json.loads((TEMPLATES / f"{of_type}.json").read_text())
    values = PoolTypes({"gpu": of_type}, IMAGE).job_variables("gpu")
    made = asyncio.run(kind.from_template_and_values(template, values, client=SimpleNamespace()))
    made.prepare_for_flow_run(FlowRun(id=uuid4(), name="piece", flow_id=uuid4()))
    return made


def test_docker_gets_the_image_the_command_and_the_gpus() -> None:
    worker = pytest.importorskip("prefect_docker.worker", reason="no prefect-docker")
    from docker.types import DeviceRequest

    made = configured(worker.DockerWorkerJobConfiguration, "docker")
    assert (made.image, made.command) == (IMAGE, "prefect flow-run execute")
    assert made.env["VARBAND_IMAGE"] == IMAGE and made.env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    (request,) = made.container_create_kwargs["device_requests"]
    assert DeviceRequest(**request)["Count"] == -1 and made.container_create_kwargs["entrypoint"] == ["env"]


def test_kubernetes_accepts_the_job() -> None:
    worker = pytest.importorskip("prefect_kubernetes.worker", reason="no prefect-kubernetes")
    validate = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate")
    job = configured(worker.KubernetesWorkerJobConfiguration, "kubernetes").job_manifest
    pod = job["spec"]["template"]["spec"]
    for name in ("parallelism", "completions"):  # Prefect demands them where Kubernetes ignores them
        assert pod.pop(name) == 1
    validate.validate(json.loads(json.dumps(job)), "1.34", strict=True)
    (container,) = pod["containers"]
    assert container["image"] == IMAGE and container["args"] == ["prefect", "flow-run", "execute"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert {"name": "VARBAND_IMAGE", "value": IMAGE} in container["env"]


#: A worker of another type, which runs a "container" as a process with the variables of its job alone.
WORKER = """
import asyncio, os, shlex, sys
from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult

class Configuration(BaseJobConfiguration):
    image: str

class Variables(BaseVariables):
    image: str

class ContainerWorker(BaseWorker):
    type = "toy"
    job_configuration = Configuration
    job_configuration_variables = Variables

    async def run(self, flow_run, configuration, task_status=None):
        environment = os.environ | {name: value for name, value in configuration.env.items() if value is not None}
        words = [sys.executable, "-m", *shlex.split(configuration.command)]
        process = await asyncio.create_subprocess_exec(*words, env=environment)
        if task_status:
            task_status.started(process.pid)
        return BaseWorkerResult(identifier=configuration.image, status_code=await process.wait())

asyncio.run(ContainerWorker("cpu").start())
"""


@pytest.mark.slow
def test_runs_of_a_pool_with_workers_of_another_type_know_their_image(tmp_path: Path) -> None:
    words = ["server", "deploy", "--pool", "cpu=toy", "--pool", "gpu=kubernetes", "--image"]
    with postgres() as database, prefect_server(tmp_path, database) as server:
        template = json.loads((TEMPLATES / "docker.json").read_text())
        template["job_configuration"] = {name: f"{{{{ {name} }}}}" for name in ("command", "env", "name", "image")}
        body = {"name": "cpu", "type": "toy", "base_job_template": template}
        assert api(server, "POST", "/work_pools/", body).status_code == 201
        server.varband(*words, IMAGE)
        assert deployment(server, "make/zz_make")["job_variables"]["image"] == IMAGE
        pool = api(server, "GET", "/work_pools/gpu").json()
        assert pool["type"] == "kubernetes" and "job_manifest" in pool["base_job_template"]["job_configuration"]
        assert "the pool cpu already has type toy" in server.varband("server", "deploy", check=False).stderr
        (tmp_path / "worker.py").write_text(WORKER)
        server.spawn([str(tmp_path / "worker.py")], "worker-cpu.log")
        wait_for(server, start(server, "plan/plan", study={"profile": "demo"}), "Completed")
        renewed = IMAGE.replace("1" * 64, "2" * 64)
        server.varband(*words, renewed)
        variables = deployment(server, "plan/plan")["job_variables"]
        assert variables["image"] == variables["env"]["VARBAND_IMAGE"] == renewed
