"""The calls of the Tinker API, by the SDK's request types. Each method of `Api` in CALLS is one path of the API.

A call queues work and returns an id, with which the client gets the answer. Models in training are in memory. The
requests since a model's last saved state are on disk, and a restarted server repeats them (`Requests`).
"""

import random
import shutil
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from tinker import types  # pyright: ignore[reportMissingImports]

from storage.artifacts.fingerprint import derived_seed
from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION, EXPERT_PROJECTIONS
from tasks.domain.policies import ServedAdapter
from tasks.engines.hardware import Execution
from tasks.engines.model_files import tokenizer_of
from tasks.engines.protocols import Decoding, Generator, Request
from tasks.engines.sampling.prompts import check_lengths
from tasks.engines.tinker_server import checkpoints
from tasks.engines.tinker_server.checkpoints import PREFIX, Checkpoint, Missing, Requests, Shape
from tasks.engines.tinker_server.jobs import Answer, Jobs, losses, read_batch
from tasks.engines.tinker_server.learner import Learner, Model

STATE = "state.safetensors"
#: Prefix of weights that were saved without a name. A server that starts without their session deletes them.
UNNAMED = "unnamed-"
CALLS = (
    *("create_session", "session_heartbeat", "create_sampling_session", "create_model", "get_info", "load_weights"),
    *("optim_step", "save_weights", "save_weights_for_sampler", "save_weights_external", "asample"),
)
Json = dict[str, Any]


class Api:
    """A base model that clients train and sample from. name: of the base model. alpha: LoRA alpha of every adapter,
    whose scale is alpha / rank. samplers: id → the checkpoint to sample from, or None for the base model."""

    def __init__(
        self, base: Path, name: str, root: Path, generator: Generator, execution: Execution, *, alpha: int, context: int
    ) -> None:
        self.base, self.name, self.root, self.alpha, self.context = base, name, root, alpha, context
        self.execution, self.tokenizer, self.jobs = execution, tokenizer_of(base), Jobs(generator)
        self.models, self.samplers = dict[str, Model](), dict[str, Checkpoint | None]()
        self.requests, self._repeating, self._repeated = Requests(root), threading.RLock(), set[tuple[str, int]]()
        self._learners: dict[tuple[int, tuple[str, ...]], Learner] = {}
        sessions = self.requests.sessions()
        for leftover in root.glob(f"*/sampler_weights/{UNNAMED}*"):
            if leftover.parts[-3].partition(":")[0] not in sessions:
                shutil.rmtree(leftover)

    def call(self, path: str, body: bytes, encoding: str | None = None) -> Json:
        """Answer a request by its path. encoding: the request's Content-Encoding."""
        if path == "forward_backward":
            return self.forward_backward(body, encoding)
        if path not in CALLS:
            raise Missing(f"this server has no {path}")
        method = getattr(self, path)
        kind = next(hint for name, hint in get_type_hints(method).items() if name != "return")
        try:
            given = kind.model_validate_json(body)
        except ValidationError as error:
            raise UserError(f"{path}: {error}") from None
        return method(given)

    def answer(self, request: str) -> Future[Answer]:
        """Return the answer to a request, even if it came before a restart. Raise Missing for an unknown request."""
        whose = request.rpartition("/")[0]
        if ":train:" in whose:
            self.model(whose)
        return self.jobs.answer(request)

    def _repeat(self, whose: str) -> None:
        """Repeat the requests of a model or sampler that came before the server was restarted."""
        rows = self.requests.of(whose)
        for number, path, body, encoding in rows:
            self._repeated.add((whose, number))
            self.call(path, body, encoding)
        if whose in self.models and len(rows) > 1:
            self.models[whose].since = rows[1][0]

    def create_session(self, _: types.CreateSessionRequest) -> Json:
        session = str(uuid.uuid4())
        self.requests.seen(session, new=True)
        return {"type": "create_session", "session_id": session}

    def session_heartbeat(self, body: types.SessionHeartbeatRequest) -> Json:
        self._check_session(body.session_id)
        return {"type": "session_heartbeat"}

    def finish(self, session: str) -> None:
        """Forget a session's models. The models' checkpoints stay."""
        self.requests.forget(session)
        for known in (self.models, self.samplers):
            for one in [one for one in known if one.startswith(f"{session}:")]:
                del known[one]

    def _check_session(self, session: str) -> None:
        if not self.requests.seen(session):
            raise Missing(f"no session {session}: it was finished, or had no sign of life for a week")

    def create_model(self, body: types.CreateModelRequest) -> Json:
        lora = body.lora_config
        if lora is None or body.optimizer_config.type != "adamw":
            raise UserError("this server trains only LoRA, with the optimiser AdamW")
        targets = (*(ATTENTION if lora.train_attn else ()), *(EXPERT_PROJECTIONS if lora.train_mlp else ()))
        if not targets:
            raise UserError("this server trains attention and MLP layers; set train_attn or train_mlp")
        seed = derived_seed(body.session_id, body.model_seq_id) if lora.seed is None else lora.seed
        shape = Shape(self._known(body.base_model), lora.rank, targets, seed)
        model_id = self._new_model(body.session_id, body.model_seq_id, shape)
        return self._queued(body, model_id, 0, lambda _: {"type": "create_model", "model_id": model_id})

    def _known(self, base_model: str | None) -> str:
        if base_model not in (self.name, str(self.base)):
            raise UserError(f"no base model {base_model!r} here: this server has {self.name}")
        return self.name

    def _new_model(self, session: str, number: int, shape: Shape) -> str:
        self._check_session(session)
        model_id = f"{session}:train:{number}"  # the same name as in the SDK
        self.models.setdefault(model_id, Model(model_id, shape))
        return model_id

    def model(self, model_id: str | None) -> Model:
        """Return a model in training. Raise Missing for an unknown model."""
        with self._repeating:
            if model_id and model_id not in self.models:
                self._repeat(model_id)
        if model_id not in self.models:
            raise Missing(f"no model {model_id} in training: its session was finished")
        return self.models[model_id]

    def get_info(self, body: types.GetInfoRequest) -> Json:
        about = {"model_name": self.name, "tokenizer_id": self.name}
        model = self.model(body.model_id)
        found = {"model_id": model.id, "lora_rank": model.shape.rank, "model_name": self.name}
        return {"type": "get_info", "model_data": about, "is_lora": True, **found}

    def _queued(self, body: Any, model_id: str | None, number: int | None, work: Callable[[Learner], Answer]) -> Json:
        """Queue work on a model, and return the id of its answer. body: the request, or (path, body, encoding)."""
        model = self.model(model_id)
        if number is None or number < model.since:
            raise UserError(f"request {number} of {model.id}: seq_id must be at least {model.since}")
        path, content, *encoding = body if isinstance(body, tuple) else (body.type, body.model_dump_json().encode())

        def run() -> Answer:
            size = model.shape.rank, model.shape.targets
            if size not in self._learners:
                self._learners[size] = Learner(self.base, *size, self.alpha, self.execution)
            self._learners[size].show(model)
            return work(self._learners[size])

        keep = lambda: self.requests.keep(model.id, number, path, content, *encoding)  # noqa: E731
        return {"request_id": self.jobs.run(model.id, number, keep, run), "model_id": model.id}

    def forward_backward(self, body: bytes, encoding: str | None) -> Json:
        message, data, settings = read_batch(body, encoding)

        def work(learner: Learner) -> Answer:
            return losses(*learner.losses(data, message.loss_fn, settings, forward_only=message.forward_only))

        return self._queued(("forward_backward", body, encoding), message.model_id, message.seq_id, work)

    def optim_step(self, body: types.OptimStepRequest) -> Json:
        params = body.optim_params
        if not isinstance(params, types.AdamParams):
            raise UserError("this server has only the optimiser AdamW")

        def work(learner: Learner) -> Answer:
            return {"metrics": {"grad_norm": learner.step(params)}}

        return self._queued(body, body.model_id, body.seq_id, work)

    def load_weights(self, body: types.LoadWeightsRequest) -> Json:
        """Load a saved state into a model without training so far. Without `optimizer`, Adam starts anew."""
        found, model_id, number = checkpoints.find(self.root, body.path), body.model_id, body.seq_id
        if body.session_id is not None and body.model_seq_id is not None:
            model_id, number = self._new_model(body.session_id, body.model_seq_id, found.shape), 0
        shape = self.model(model_id).shape
        if (found.shape.rank, found.shape.targets) != (shape.rank, shape.targets):
            raise UserError(f"{body.path} has another rank or other layers than this model")

        def work(learner: Learner) -> Answer:
            state = load_file(found.folder / STATE)
            learner.restore(state if body.optimizer else {"weights": state["weights"]})
            return {"type": "load_weights", "path": body.path, "model_id": model_id}

        return self._queued(body, model_id, number, work)

    def save_weights(self, body: types.SaveWeightsRequest) -> Json:
        return self._saved(body, "weights", body.path or str(body.seq_id), overwrite=body.overwrite)

    def save_weights_external(self, body: types.SaveWeightsExternalRequest) -> Json:
        return self._saved(body, "external_weights", body.path)

    def save_weights_for_sampler(self, body: types.SaveWeightsForSamplerRequest) -> Json:
        """Save weights to sample from. Weights without a name belong to a new sampler."""
        if body.path is not None:
            return self._saved(body, "sampler_weights", body.path)
        session, number = body.model_id.partition(":")[0], body.sampling_session_seq_id

        def sampler(path: str) -> Answer:
            made = self._new_sampler(session, number, checkpoints.find(self.root, path))
            return {"type": body.type, "sampling_session_id": made}

        return self._saved(body, "sampler_weights", f"{UNNAMED}{number}", then=sampler)

    def _saved(
        self, body: Any, kind: str, name: str, *, overwrite: bool = False, then: Callable[[str], Answer] | None = None
    ) -> Json:
        """Save a checkpoint. Kind `weights` is the state to resume from, without a summed gradient. Checkpoints of
        other kinds are an adapter in PEFT format, in float32. then: returns the answer for the checkpoint's path."""
        path, shape = f"{PREFIX}{body.model_id}/{kind}/{name}", self.model(body.model_id).shape

        def work(learner: Learner) -> Answer:
            lora = learner.policy.lora
            if (body.model_id, body.seq_id) not in self._repeated or not checkpoints.there(self.root, path):
                with checkpoints.writing(self.root, path, shape, overwrite=overwrite) as folder:
                    if kind == "weights":
                        save_file(learner.updater.tensors(), folder / STATE)
                    else:
                        lora.export(folder, self.base, lora.master.dtype)
            if kind == "weights" and not lora.grad.any():
                session, _, number = body.model_id.partition(":train:")
                load = types.LoadWeightsRequest(session_id=session, model_seq_id=number, path=path, optimizer=True)
                self.requests.saved(body.model_id, body.seq_id, load.type, load.model_dump_json().encode())
            return then(path) if then else {"type": body.type, "path": path}

        return self._queued(body, body.model_id, body.seq_id, work)

    def create_sampling_session(self, body: types.CreateSamplingSessionRequest) -> Json:
        if body.model_path is None:
            self._known(body.base_model)
        found = None if body.model_path is None else checkpoints.find(self.root, body.model_path)
        if found is not None and (found.folder / STATE).is_file():
            raise UserError(f"{found.path} is a training state; to sample, save weights with save_weights_for_sampler")
        sampler = self._new_sampler(body.session_id, body.sampling_session_seq_id, found)
        return {"type": "create_sampling_session", "sampling_session_id": sampler}

    def _new_sampler(self, session: str, number: int | None, found: Checkpoint | None) -> str:
        self._check_session(session)
        sampler = f"{session}:sample:{number}"
        self.samplers[sampler] = found
        of = {"base_model": self.name} if found is None else {"model_path": found.path}
        again = types.CreateSamplingSessionRequest(session_id=session, sampling_session_seq_id=number, **of)
        self.requests.keep(sampler, 0, "create_sampling_session", again.model_dump_json().encode())
        return sampler

    def sampler(self, sampler: str | None) -> Checkpoint | None:
        """Return the checkpoint that a sampler samples from; None for the base model."""
        if sampler and sampler not in self.samplers:
            self._repeat(sampler)
        if sampler not in self.samplers:
            raise Missing(f"no sampler {sampler}: its session was finished")
        return self.samplers[sampler]

    def asample(self, body: types.SampleRequest) -> Json:
        """Queue samples. The request's seed is that of the first sample, and gives those of further samples."""
        params, found = body.sampling_params, self.sampler(body.sampling_session_id)
        if params.top_k > 0 or params.max_tokens is None:
            raise UserError("to sample, this server needs max_tokens, and it does not support top_k")
        if body.prompt_logprobs or body.topk_prompt_logprobs or body.topk_sample_logprobs or body.prompt_alt_tokens_k:
            raise UserError("this server returns log-probs of sampled tokens only; for those of a text call forward")
        given = [params.stop] if isinstance(params.stop, str) else params.stop or []
        stop = tuple(one if isinstance(one, str) else self.tokenizer.decode([one]) for one in given)
        decoding = Decoding(max_tokens=params.max_tokens, temperature=params.temperature, top_p=params.top_p, stop=stop)
        first = random.randrange(1 << 31) if params.seed is None else params.seed
        seeds = [derived_seed(first, i) if i else first for i in range(body.num_samples)]
        prompt = tuple(body.prompt.to_ints())
        requests = [Request(i, prompt, seed, decoding) for i, seed in enumerate(seeds)]
        check_lengths(requests, self.context)
        adapter = None if found is None else ServedAdapter(found.path, found.folder)
        request = self.jobs.sample(str(body.sampling_session_id), body.seq_id, adapter, requests)
        return {"request_id": request, "sample_sequence_ids": [f"{request}/{i}" for i in range(len(requests))]}
