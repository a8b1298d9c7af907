"""The learner on a Tinker service: advantages here, gradients and Adam there, and each step settled by a saved state.

After a step's updates the model's state is saved there under a name that holds the step. Before that, the model's id
and the step's metrics are written here. A resumed training starts a new model from the state of its last checkpoint;
if the next step was sent but its checkpoint is missing here, the service is asked whether that step's state exists.
Then the training goes on from it, otherwise the step is sent again. A model that was left behind is never used again.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from torch import Tensor

from storage.errors import UserError
from storage.roots import write_durably
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.credit import Credit, Groups, ObjectiveState
from tasks.domain.grpo.learner_config import ALL_LINEAR, ATTENTION, EXPERT_PROJECTIONS, LearnerConfig
from tasks.domain.grpo.losses import MAX_LOG_RATIO, loss_for
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.engines.adapter_files import ADAPTER_FILES, adapter_files
from tasks.engines.learning.adapters import Adapters, evaluated
from tasks.engines.learning.update import Clock, Sums, Updater
from tasks.engines.model_files import names_of
from tasks.engines.tinker_service import REMOTE, Service, answered, sdk

#: This project's losses by the service's names. Divisors, which are known before the update, multiply the advantages.
SERVICE_LOSSES = {
    "importance_sampling": "importance_sampling",
    **dict.fromkeys(("ppo", "grpo", "dapo", "dr_grpo"), "ppo"),
    **dict.fromkeys(("cispo", "tis"), "cispo"),
    "rloo": "cross_entropy",
}
#: Unused states expire there after 30 days.
KEPT_SECONDS = 30 * 24 * 3600
LAYERS = {frozenset(ALL_LINEAR), frozenset(ATTENTION), frozenset(EXPERT_PROJECTIONS)}
#: Called with the number of tokens before they are sent. Errors: Parked if the budget does not allow it.
Pay = Callable[[int], None]


def refuse_unserved(config: LearnerConfig, temperature: float) -> None:
    """Raise UserError for a training that a Tinker service cannot compute."""
    wrong = {
        f"loss {config.loss}; it has {', '.join(SERVICE_LOSSES)}": config.loss not in SERVICE_LOSSES,
        "kl_weight or an entropy bonus": config.kl_weight or config.entropy_weight or config.entropy_target,
        f"advantage {config.advantage}, which trains two adapters": "agents" in ADVANTAGES[config.advantage].needs,
        "expert_rank": config.expert_rank is not None,
        "target_modules other than attention, MLP or both": frozenset(config.target_modules) not in LAYERS,
        f"rollouts.temperature {temperature:g}; it trains the policy at 1": temperature != 1,
    }
    for what, found in wrong.items():
        if found:
            raise UserError(f"engine tinker: the service has no {what}")


class RemoteModel:
    """The model in training on the service. path: of the state after its last saved step; empty before the first.
    name: prefix of its states' names."""

    def __init__(
        self, base: Path, config: LearnerConfig, served: str, workdir: Path, name: str, path: str, init: Path | None
    ) -> None:
        self.base, self.config, self.name, self.path = base, config, name, path
        self.service, self.sent = Service(names_of(base), served), workdir / "sent.json"
        client, layers = self.service.client, frozenset(config.target_modules)
        if path:
            self._resume(path)
        elif init is not None:
            if not (init / REMOTE).is_file():
                raise UserError(f"{init}: this adapter was not trained on a Tinker service, which cannot start from it")
            state = json.loads((init / REMOTE).read_text())["state"]
            self.client = answered(lambda: client.create_training_client_from_state(state))
        else:
            parts = {"train_attn": "q_proj" in layers, "train_mlp": "up_proj" in layers, "train_unembed": False}
            start = {"base_model": self.service.model, "rank": config.lora_rank, "seed": config.seed, **parts}
            self.client = answered(lambda: client.create_lora_training_client(**start))

    def _resume(self, path: str) -> None:
        self.path = path
        resume = self.service.client.create_training_client_from_state_with_optimizer
        self.client = answered(lambda: resume(path))

    def name_of(self, step: int) -> str:
        return f"{self.name}-{step:04d}"

    def save(self, step: int, sums: Sequence[Sums]) -> None:
        """Save the state after a step."""
        sent = {"step": step, "model": self.client.model_id, "sums": [asdict(one) for one in sums]}
        write_durably(self.sent, json.dumps(sent).encode())
        self.path = answered(lambda: self.client.save_state(self.name_of(step), ttl_seconds=KEPT_SECONDS)).path

    def saved(self, step: int) -> list[Sums] | None:
        """Return the metrics of a step that an earlier process sent and the service saved, and go on from its state;
        otherwise None."""
        sent: dict[str, Any] = json.loads(self.sent.read_text()) if self.sent.is_file() else {"step": None}
        if sent["step"] != step:
            return None
        listed = answered(lambda: self.service.rest.list_checkpoints(sent["model"])).checkpoints
        paths = [one.tinker_path for one in listed if one.checkpoint_id == f"weights/{self.name_of(step)}"]
        if not paths:
            return None
        self._resume(paths[0])
        return [Sums(**one) for one in sent["sums"]]

    def export(self, step: int, folder: Path, *, kept: bool) -> None:
        """Save weights to sample from; kept ones are also downloaded, where the service hands out PEFT's files."""
        folder.mkdir(parents=True)
        ttl, name = None if kept else KEPT_SECONDS, self.name_of(step)
        path = answered(lambda: self.client.save_weights_for_sampler(name, ttl_seconds=ttl)).path
        if kept:
            external = answered(lambda: self.client.save_weights_external(name, ttl_seconds=KEPT_SECONDS)).path
            urls = answered(lambda: self.service.rest.get_external_weights_urls(external)).urls
            if {*ADAPTER_FILES} <= {*urls}:
                for file in ADAPTER_FILES:
                    answered(lambda file=file: _download(urls[file], folder / file))
                adapter_files(folder).check_recipe(self.config)
        (folder / REMOTE).write_text(json.dumps({"sampler": path, "state": self.path, "expires_in_seconds": ttl}))

    def score(self, groups: Sequence[PromptGroup], temperature: float, *, base: bool = False, **_: Any) -> np.ndarray:
        """Return the log-probs of completion tokens with known behaviour log-probs, concatenated; NaN for the base."""
        data = [datum_of(group, one, "weights", 0.0) for group in groups for one in group.trajectories]
        found = answered(lambda: self.client.forward(data, "cross_entropy")).loss_fn_outputs
        logprobs_K = np.concatenate([of_completion(*pair) for pair in paired(groups, found)])
        return np.full_like(logprobs_K, np.nan) if base else logprobs_K


def _download(url: str, file: Path) -> None:
    with httpx.stream("GET", url) as answer, file.open("wb") as handle:
        handle.writelines(answer.raise_for_status().iter_bytes())


def datum_of(group: PromptGroup, one: Trajectory, weight: str, value: float) -> Any:
    """Return one completion for the service; prompt tokens and those without behaviour log-prob weigh nothing."""
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
    """The updater whose gradients and optimiser are on the service. There is no entropy: it returns log-probs only."""

    def __init__(self, model: RemoteModel, config: LearnerConfig, pay: Pay) -> None:
        self.model, self.config, self.pay, self.loss = model, config, pay, loss_for(config)
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
        known = self.model.saved(step)
        self._known, self._made = deque(known or ()), []
        row = super().update(groups, clock, step)
        if known is None:
            with clock.phase("checkpoint"):
                self.model.save(step, self._made)
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
                share = scale / int(np.isfinite(one.behaviour_T).sum()) if of_each else scale
                data.append(datum_of(group, one, weight, one.advantage * share))
        self.pay(sum(datum.model_input.length for datum in data))
        with clock.phase("train"):
            answer = answered(lambda: self.model.client.forward_backward(data, name, settings))
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
        if sums.made:  # by an earlier process
            return
        (beta1, beta2), config = self.config.betas, self.config
        decay = {"weight_decay": config.weight_decay, "grad_clip_norm": config.grad_clip or 0.0}
        adam = sdk().types.AdamParams(learning_rate=rate, beta1=beta1, beta2=beta2, eps=config.eps, **decay)
        answer = answered(lambda: self.model.client.optim_step(adam))
        sums.made, sums.norm = True, (answer.metrics or {}).get("grad_norm", math.nan)


class TinkerAdapters(Adapters):
    """Adapters of a training on the service; `policy` is its RemoteModel."""

    def _write(self, step: int, folder: Path) -> None:
        self.policy.export(step, folder, kept=evaluated(self.config, step))

    def _remember(self, step: int) -> None:
        self._recent = {step: (None, None)}

    def _begin(self) -> None:
        pass

    def critic(self, step: int) -> None:
        return None

    def _score(self, step: int, *given: Any, **how: Any) -> np.ndarray:
        with self.changing:
            return self.policy.score(*given, **how)
