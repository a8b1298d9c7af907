"""The Tinker API over HTTP, on this machine only."""

import asyncio
import traceback
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware
from tinker.types import FutureRetrieveRequest  # pyright: ignore[reportMissingImports]

from storage.errors import UserError
from tasks.engines.tinker_server import checkpoints
from tasks.engines.tinker_server.api import UNNAMED, Api
from tasks.engines.tinker_server.checkpoints import KINDS, PREFIX, SHAPE, Checkpoint, Missing

#: Seconds for which a request for an answer waits before the client must ask again. The client gives up after 45.
WAIT_SECONDS = 20.0
PROTOBUF = "application/x-protobuf"
#: Answers that are always the same.
FIXED = {
    "client/config": {"proto_compress_fwdbwd": True},
    "client/dynamic_config": {},
    "telemetry": {"status": "accepted"},
}
Json = dict[str, Any]


def app_of(api: Api) -> FastAPI:
    """Return the application, which answers only requests that name this machine, and not a page of another site."""
    app = FastAPI(title="Varband's Tinker server", docs_url=None, redoc_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])

    @app.exception_handler(UserError)
    async def refuse(_: Request, error: UserError) -> Response:
        return JSONResponse({"detail": str(error)}, 404 if isinstance(error, Missing) else 422)

    @app.get("/api/v1/healthz")
    def health() -> Json:
        return {"status": "ok"}

    @app.get("/api/v1/get_server_capabilities")
    def capabilities() -> Json:
        model = {"model_name": api.name, "max_context_length": api.context, "trainable": True, "sampleable": True}
        return {"supported_models": [model]}

    @app.get("/api/v1/samplers/{sampler}")
    def sampler(sampler: str) -> Json:
        found = api.sampler(sampler)
        return {"sampler_id": sampler, "base_model": api.name, "model_path": found and found.path}

    @app.post("/api/v1/sessions/{session}/finish", status_code=204)
    def finish(session: str) -> None:
        api.finish(session)

    @app.post("/api/v1/retrieve_future")
    async def retrieve(body: FutureRetrieveRequest) -> Response:
        try:
            pending = asyncio.wrap_future(await run_in_threadpool(api.answer, body.request_id))
        except Missing as error:  # after status 410 the SDK sends a sample again
            return JSONResponse({"detail": str(error)}, 410)
        if not (await asyncio.wait([pending], timeout=WAIT_SECONDS))[0]:
            again = {"type": "try_again", "request_id": body.request_id, "queue_state": "active"}
            return JSONResponse(again)
        if error := pending.exception():
            category = "user" if isinstance(error, UserError) else "server"
            if category == "server":
                traceback.print_exception(error)
            return JSONResponse({"error": f"{error}" or type(error).__name__, "category": category})
        answer = pending.result()
        return Response(answer, media_type=PROTOBUF) if isinstance(answer, bytes) else JSONResponse(answer)

    _add_checkpoints(app, api)

    @app.post("/api/v1/{path:path}")
    async def call(path: str, request: Request) -> Json:
        body = await request.body()
        if path in FIXED:
            return FIXED[path]
        return await run_in_threadpool(api.call, path, body, request.headers.get("content-encoding"))

    return app


def _add_checkpoints(app: FastAPI, api: Api) -> None:
    """Add the routes that list, describe and download checkpoints."""

    def description(one: Checkpoint) -> Json:
        *_, kind, name = one.folder.parts
        size = sum(file.stat().st_size for file in one.folder.iterdir())
        about = {"checkpoint_id": f"{kind}/{name}", "checkpoint_type": KINDS[kind], "tinker_path": one.path}
        return {**about, "time": one.time, "size_bytes": size}

    @app.get("/api/v1/training_runs/{model_id}/checkpoints")
    def of_model(model_id: str) -> Json:
        found = checkpoints.listed(api.root, model_id)
        return {"checkpoints": [description(one) for one in found if not one.folder.name.startswith(UNNAMED)]}

    @app.get("/api/v1/training_runs/{model_id}/checkpoints/external_weights/{name}/external_weights_urls")
    def urls(request: Request, model_id: str, name: str) -> Json:
        folder = checkpoints.find(api.root, f"{PREFIX}{model_id}/external_weights/{name}").folder
        files = sorted(file.name for file in folder.iterdir() if file.name != SHAPE)
        places = {file: str(request.url_for("download", model_id=model_id, name=name, file=file)) for file in files}
        return {"urls": places, "expires": datetime.now(UTC) + timedelta(hours=1)}

    @app.get("/files/{model_id}/external_weights/{name}/{file}")
    def download(model_id: str, name: str, file: str) -> Response:
        folder = checkpoints.find(api.root, f"{PREFIX}{model_id}/external_weights/{name}").folder
        if file not in {one.name for one in folder.iterdir()}:
            raise Missing(f"no file {file} in that checkpoint")
        return FileResponse(folder / file)
