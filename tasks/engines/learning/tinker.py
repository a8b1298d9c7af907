"""The learner on a Tinker service. Advantages are computed here, and gradients and Adam on the service.

Before the first request of a step, the learner writes the model and the number of this request to `sent.json`. After
the updates the service saves the model's state, under a name that contains the step. A resumed training starts a new
model from the state of its last checkpoint. If the next step was sent before a crash, the service knows what became of
it:

- The state after the step is saved: the training continues from this state.
- The model is still in memory: the step is sent again to this model with the same request numbers. The service answers
  each request number once, so it does not repeat finished work.
- Neither is true, because the service lost the model before it saved the step: the step is sent and paid again.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
from torch import Tensor

from storage.errors import Parked, UserError
from storage.roots import write_durably
from tasks.domain.grpo.credit import Credit, Groups, ObjectiveState
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import MAX_LOG_RATIO, loss_for
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.engines.adapter_files import ADAPTER_FILES, adapter_files
from tasks.engines.learning.checkpoints import Adapters, evaluated
from tasks.engines.learning.update import Clock, Sums, Updater
from tasks.engines.model_files import names_of
from tasks.engines.tinker_service import (
    REMOTE,
    SERVICE_LOSSES,
    Gone,
    Service,
    answered,
    refuse_other_alpha,
    sdk,
    unserved,
)

if TYPE_CHECKING:
    from tasks.engines.learning.learner import Job

#: Seconds after which the service deletes a state that is not used.
KEPT_SECONDS = 30 * 24 * 3600
#: Called before tokens are sent, with their number and a key by which they are charged once (empty: charge always). It
#: raises Parked if the budget does not allow the tokens.
Pay = Callable[[int, str], None]


class RemoteModel:
    """The model in training on the service. Raise UserError for a training that a Tinker service cannot compute. path:
    that of the state after the last saved step; empty before the first. name: the names of its states begin with it.
    step, first: the current step, and the number of its first request."""

    def __init__(self, job: "Job", name: str, path: str, pay: Pay) -> None:
        if found := unserved(job.config, job.temperature):
            raise UserError("; ".join(found.values()))
        self.base, self.config, self.name, self.path, self.pay = job.base, job.config, name, path, pay
        self.service, self.sent = Service(names_of(job.base), job.execution.service or ""), job.workdir / "sent.json"
        self.step, self.first = 0, 0
        if path:
            self._resume(path)
        elif job.init_adapter is not None:
            self._start_from(job.init_adapter)
        else:
            self.client = self.service.new_model(self.config)

    def _start_from(self, init: Path) -> None:
        if not (init / REMOTE).is_file():
            raise UserError(
                f"{init}: a Tinker service can only start from an adapter that it trained; choose another engine"
            )
        remote = json.loads((init / REMOTE).read_text())
        start = self.service.client.create_training_client_from_state
        gone = f"{init}: the service no longer has its state, which expires at {remote['state_expires']}"
        self.client = answered(lambda: start(remote["state"]), gone)

    def _resume(self, path: str) -> None:
        self.path = path
        resume = self.service.client.create_training_client_from_state_with_optimizer
        gone = f"the service no longer has {path}; remove {self.sent.parent}, and the training starts again"
        self.client = answered(lambda: resume(path), gone)

    def ask(self, call: Callable[[], Any]) -> Any:
        """Return the answer of the model in training. Raise Parked if the service lost the model."""
        try:
            return answered(call, "the service lost the model in training")
        except Gone as error:
            self.sent.unlink(missing_ok=True)
            raise Parked(f"{error}; the same command resumes from the last saved step") from None

    def name_of(self, step: int) -> str:
        return f"{self.name}-{step:04d}"

    def settle(self, step: int) -> list[Sums]:
        """Find out what became of a step that an earlier process sent. If the state after the step was saved, return
        the metrics of its updates. If not, return nothing; the step must then be sent."""
        sent = json.loads(self.sent.read_text()) if self.sent.is_file() else {}
        if sent.get("step") == step:
            path = next((path for path in self._saved(sent["model"]) if path.endswith(f"/{self.name_of(step)}")), "")
            if path:
                self._resume(path)
                return [Sums(**one) for one in sent["sums"]]
            if self._attached(sent):
                return []
        self.step, self.first = step, self.client._request_id_counter
        self._note()
        return []

    def _saved(self, model: str) -> dict[str, str | None]:
        """Return the paths of a model's states and samplers, each with the time when it expires."""
        return {one.tinker_path: one.expires_at and one.expires_at.isoformat() for one in self._listed(model)}

    def _listed(self, model: str) -> Sequence[Any]:
        with suppress(Gone):
            return answered(lambda: self.service.rest.list_checkpoints(model), "it has no such model").checkpoints
        return []

    def _attached(self, sent: Mapping[str, Any]) -> bool:
        """Continue with the model of an earlier process, from the first request of its last step. Return False if the
        service no longer has the model."""
        with suppress(Gone):
            self.client = self.service.attached(self.client, sent["session"], sent["model"], sent["first"])
            self.step, self.first = sent["step"], sent["first"]
            return True
        return False

    def _note(self, sums: Sequence[Sums] = ()) -> None:
        """Write how far the current step is, for a process that resumes the training."""
        where = {"session": self.client.holder.get_session_id(), "model": self.client.model_id, "first": self.first}
        sent = {"step": self.step, **where, "sums": [asdict(one) for one in sums]}
        write_durably(self.sent, json.dumps(sent).encode())

    def save(self, sums: Sequence[Sums]) -> None:
        self._note(sums)
        name = self.name_of(self.step)
        self.path = self.ask(lambda: self.client.save_state(name, ttl_seconds=KEPT_SECONDS)).path

    def export(self, step: int, folder: Path, *, kept: bool) -> None:
        """Save weights to sample from. Download kept ones too, if the service gives out PEFT's files."""
        folder.mkdir(parents=True)
        ttl, name = None if kept else KEPT_SECONDS, self.name_of(step)
        path = self.ask(lambda: self.client.save_weights_for_sampler(name, ttl_seconds=ttl)).path
        if kept:
            urls = self.service.adapter_urls(self.client, name, KEPT_SECONDS)
            if {*ADAPTER_FILES} <= {*urls}:
                for file in ADAPTER_FILES:
                    answered(lambda file=file: _download(urls[file], folder / file))
                found = adapter_files(folder)
                refuse_other_alpha(found.alpha, self.config)
                found.check_recipe(self.config)
        expires = {one: self._saved(one.split("/")[2]).get(one) for one in (path, self.path) if one}
        remote = {"sampler": path, "sampler_expires": expires[path]}
        remote |= {"state": self.path, "state_expires": expires.get(self.path)}
        (folder / REMOTE).write_text(json.dumps(remote))

    def score(self, groups: Sequence[PromptGroup], temperature: float, *, base: bool = False, **_: Any) -> np.ndarray:
        """Return the log-probs of completion tokens with known behaviour log-probs, in one vector; NaN for the base."""
        if base:
            known = (np.isfinite(one.behaviour_T).sum() for group in groups for one in group.trajectories)
            return np.full(sum(known), np.nan, np.float32)
        data = [datum_of(group, one, "weights", 0.0) for group in groups for one in group.trajectories]
        self.pay(sum(datum.model_input.length for datum in data), "")
        found = self.ask(lambda: self.client.forward(data, "cross_entropy")).loss_fn_outputs
        return np.concatenate([of_completion(*pair) for pair in paired(groups, found)])


def _download(url: str, file: Path) -> None:
    with httpx.stream("GET", url) as answer, file.open("wb") as handle:
        handle.writelines(answer.raise_for_status().iter_bytes())


def datum_of(group: PromptGroup, one: Trajectory, weight: str, value: float) -> Any:
    """Return one completion for the service. Prompt tokens and tokens without behaviour log-prob have weight 0."""
    known_T, before = np.isfinite(one.behaviour_T), np.zeros(len(group.prompt_ids) - 1, np.float32)
    inputs = {
        "target_tokens": np.concatenate([before, one.token_ids]).astype(np.int64),
        weight: np.concatenate([before, np.where(known_T, value, 0)]).astype(np.float32),
    }
    if weight == "advantages":
        behaviour_T = np.where(known_T, one.behaviour_T, 0)
        inputs["logprobs"] = np.concatenate([before, behaviour_T]).astype(np.float32)
    types = sdk().types
    tokens = types.ModelInput.from_ints([int(t) for t in (*group.prompt_ids, *one.token_ids)][:-1])
    return types.Datum(model_input=tokens, loss_fn_inputs=inputs)


def paired(groups: Sequence[PromptGroup], outputs: Sequence[Any]) -> list[tuple[Trajectory, Any]]:
    return [*zip((one for group in groups for one in group.trajectories), outputs, strict=True)]


def of_completion(one: Trajectory, output: Any) -> np.ndarray:
    """Return the learner's log-probs of a completion's tokens with known behaviour log-prob."""
    return np.asarray(output["logprobs"].data, np.float32)[-len(one.token_ids) :][np.isfinite(one.behaviour_T)]


class TinkerUpdater(Updater):
    """The updater whose gradients and optimiser are on the service, which returns log-probs but no entropies."""

    def __init__(self, model: RemoteModel, config: LearnerConfig) -> None:
        self.model, self.config, self.loss = model, config, loss_for(config)
        self.start, self.state, self.diagnostics = None, ObjectiveState(), {}
        self._known, self._made = deque[Sums](), list[Sums]()

    @property
    def remote(self) -> str:
        return self.model.path

    def start_here(self) -> None:
        pass

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor], remembered: ObjectiveState) -> None:
        self.state = remembered

    def update(self, groups: Groups, clock: Clock, step: int = 1) -> dict[str, Any]:
        known = self.model.settle(step)
        self._known, self._made = deque(known), []
        row = super().update(groups, clock, step)
        if not known:
            with clock.phase("checkpoint"):
                self.model.save(self._made)
        return row | {"entropy": None, "grad_norm": None if math.isnan(row["grad_norm"] or 0) else row["grad_norm"]}

    def gradient(
        self, groups: Groups, clock: Clock, credit: Credit | None = None, key: Sequence[object] = ("weights",)
    ) -> Sums:
        self._made.append(self._known.popleft() if self._known else super().gradient(groups, clock, credit, key))
        return self._made[-1]

    def _summed(self, live: Sequence[PromptGroup], scale: float, clock: Clock) -> Sums:
        if not live:
            return Sums()
        name, config = SERVICE_LOSSES[self.config.loss], self.config
        bounds = {
            "ppo": (1 - config.clip_low, 1 + config.clip_high),
            "cispo": (0.0, config.tis_cap if config.loss == "tis" else 1 + config.clip_high),
        }.get(name)
        settings = bounds and {"clip_low_threshold": bounds[0], "clip_high_threshold": bounds[1]}
        weight, of_each = "weights" if name == "cross_entropy" else "advantages", self.loss.reduction == "mean_of_means"
        data = []
        for group in live:
            for one in group.trajectories:
                share = scale / max(1, int(np.isfinite(one.behaviour_T).sum())) if of_each else scale
                data.append(datum_of(group, one, weight, one.advantage * share))
        key = f"{self.model.client.model_id}/{self.model.step}/{len(self._made)}"
        self.model.pay(sum(datum.model_input.length for datum in data), key)
        with clock.phase("train"):
            answer = self.model.ask(lambda: self.model.client.forward_backward(data, name, settings))
        pairs = paired(live, answer.loss_fn_outputs)
        behaviour = np.concatenate([one.behaviour_T[np.isfinite(one.behaviour_T)] for one, _ in pairs])
        away = np.concatenate([of_completion(*pair) for pair in pairs]).astype(np.float64) - behaviour
        ratios = np.exp(away.clip(max=MAX_LOG_RATIO))
        kl = (ratios - 1 - away.clip(max=MAX_LOG_RATIO)).sum()
        return Sums(
            bounded=int((away > MAX_LOG_RATIO).sum()),
            loss=float(answer.metrics.get("loss:sum", math.nan)),
            ratio=float(ratios.sum()),
            ratio_max=float(ratios.max()),
            kl=float(kl),
        )

    def _optimise(self, sums: Sums, rate: float) -> None:
        if sums.made:  # an earlier process made this update
            return
        (beta1, beta2), config = self.config.betas, self.config
        decay = {"weight_decay": config.weight_decay, "grad_clip_norm": config.grad_clip or 0.0}
        adam = sdk().types.AdamParams(learning_rate=rate, beta1=beta1, beta2=beta2, eps=config.eps, **decay)
        answer = self.model.ask(lambda: self.model.client.optim_step(adam))
        sums.made, sums.norm = True, (answer.metrics or {}).get("grad_norm", math.nan)


class TinkerAdapters(Adapters):
    """The adapters of a training on the service. `policy` is its RemoteModel."""

    def _write(self, step: int, folder: Path) -> None:
        self.policy.export(step, folder, kept=evaluated(self.config, step))

    def _remember(self, step: int) -> None:
        # with staleness, the next update may come before these weights score tokens
        self._recent = {} if self.config.staleness else {step: (None, None)}

    def _begin(self) -> None:
        pass

    def critic(self, step: int) -> None:
        return None

    def _score(self, step: int, *given: Any, **how: Any) -> np.ndarray:
        with self.changing:
            return self.policy.score(*given, **how)
