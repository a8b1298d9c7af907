"""The connection to a Tinker service: the settings that it can train with, its name for the study's model, and its
errors as errors of this project.

Address and key come from the environment (TINKER_BASE_URL, TINKER_API_KEY), never from a study.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import httpx

from storage.errors import Parked, UserError
from storage.roots import seconds_set
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import ALL_LINEAR, ATTENTION, EXPERT_PROJECTIONS, LearnerConfig

#: File in the folder of a remote adapter: its paths on the service, and when they expire.
REMOTE = "tinker.json"
#: The service's names of this project's losses. Divisors are known before the update, and multiply the advantages.
SERVICE_LOSSES = {
    "importance_sampling": "importance_sampling",
    **dict.fromkeys(("ppo", "grpo", "dapo", "dr_grpo"), "ppo"),
    **dict.fromkeys(("cispo", "tis"), "cispo"),
    "rloo": "cross_entropy",
}
LAYERS = {frozenset(ALL_LINEAR), frozenset(ATTENTION), frozenset(EXPERT_PROJECTIONS)}
#: The longest wait that a service may request, in seconds.
LONGEST_WAIT = 600.0


def unserved(config: LearnerConfig, temperature: float) -> dict[str, str]:
    """Return the settings with which a Tinker service cannot train, each with the value that it supports."""
    two = "agents" in ADVANTAGES[config.advantage].needs
    found = {
        "loss": config.loss not in SERVICE_LOSSES and f"no loss {config.loss}; it has {', '.join(SERVICE_LOSSES)}",
        "kl_weight": config.kl_weight and "no KL term; set it to 0",
        "entropy_weight": config.entropy_weight and "no entropy term; set it to 0",
        "entropy_target": config.entropy_target and "no entropy term; leave it out",
        "advantage": two and f"one adapter a model, and {config.advantage} trains two; choose another advantage",
        "expert_rank": config.expert_rank is not None and "one rank for all layers; leave it out",
        "target_modules": frozenset(config.target_modules) not in LAYERS
        and f"only the choice of attention ({', '.join(ATTENTION)}), MLP ({', '.join(EXPERT_PROJECTIONS)}) or both",
        "temperature": temperature != 1 and f"no temperature in training; sample at 1 and not at {temperature:g}",
    }
    return {name: f"engine tinker: the service has {words}" for name, words in found.items() if words}


def refuse_other_alpha(alpha: float, config: LearnerConfig) -> None:
    """Raise UserError if adapters of the service have another LoRA alpha than the training's."""
    if alpha != config.lora_alpha:
        raise UserError(
            f"training.lora_alpha is {config.lora_alpha}, but adapters of this Tinker service have {alpha:g}: set"
            f" training.lora_alpha={alpha:g}, or start your own server with --lora-alpha {config.lora_alpha}"
        )


def sdk() -> Any:
    """Return the SDK. Raise UserError if the SDK is not installed."""
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    try:
        import tinker  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("engine tinker: the Tinker SDK is not installed: install varband[tinker]") from None
    return tinker


def address() -> str:
    """Return the address of the service, by default Tinker's own."""
    return os.environ.get("TINKER_BASE_URL") or "https://tinker.thinkingmachines.dev"


def patience() -> float:
    return seconds_set("VARBAND_TINKER_TIMEOUT", 3600.0)


class Gone(UserError):
    """A state, model or session that the service no longer has."""


_RESUME = "what was sampled and saved is kept, and the same command resumes"


def answered(call: Callable[[], Any], gone: str = "") -> Any:
    """Return the answer to a call of the SDK, which itself repeats requests that may succeed later. Raise Gone with the
    message `gone` if the service no longer has the state, model or session; Parked if the service is away, late or out
    of credit; UserError if the service rejects the request or the key."""
    answer: Future[Any] = Future()

    def wait() -> None:
        try:
            found = call()
            answer.set_result(found.result(timeout=patience()) if hasattr(found, "result") else found)
        except BaseException as error:
            answer.set_exception(error)

    # calls without a future have no timeout, so they run in a thread
    threading.Thread(target=wait, name="tinker-call", daemon=True).start()
    try:
        return answer.result(timeout=patience())
    except Exception as error:
        found = _in_words(error, gone)
        if found is None:
            raise
        raise found from None


def _in_words(error: Any, gone: str) -> UserError | None:
    """Return this project's error for an error of the SDK, which may be the cause or context of `error`."""
    tinker: Any = sdk()
    link: Any = error
    while link is not None and not isinstance(link, tinker.APIStatusError):
        link = link.__cause__ or link.__context__
    status = None if link is None else link.status_code
    if status in (401, 403):
        return UserError(f"engine tinker: the service refuses the key ({link}); check TINKER_API_KEY")
    if status == 402:
        return Parked(f"engine tinker: the service's account has no credit ({link}): pay there; {_RESUME}")
    if status in (404, 410) and gone:
        return Gone(f"engine tinker: {gone} ({link})")
    if status in (400, 422):
        return UserError(f"engine tinker: {link}")
    if isinstance(error, tinker.RequestFailedError):
        return (UserError if error.category == "user" else Parked)(f"engine tinker: {error}")
    if type(error) is tinker.TinkerError:  # there is no key, or the key has another form
        return UserError(f"engine tinker: {error}")
    if isinstance(error, AssertionError):
        return UserError(f"engine tinker: the SDK does not understand the service's answer: {error}")
    if isinstance(error, TimeoutError):
        return Parked(f"engine tinker: no answer within {patience():g} s (VARBAND_TINKER_TIMEOUT); {_RESUME}")
    if link is not None or isinstance(error, (tinker.TinkerError, httpx.HTTPError, ValueError, RuntimeError)):
        return Parked(f"engine tinker: {type(error).__name__}: {error}; {_RESUME}")
    return None


class Service:
    """One session on the service. names: possible names of the study's model. served: its exact name, if set."""

    def __init__(self, names: Collection[str], served: str) -> None:
        try:  # the SDK itself would try for five minutes
            httpx.get(f"{address()}/api/v1/healthz", timeout=min(30.0, patience()))
        except httpx.TransportError as error:
            raise Parked(f"engine tinker: {address()} (TINKER_BASE_URL) does not answer: {error}; {_RESUME}") from None
        listed = [str(one.model_name) for one in answered(self.rest.get_server_capabilities).supported_models]
        alike = [one for one in listed if one.rpartition("/")[2].lower() in {name.lower() for name in names}]
        if served not in listed and (served or len(alike) != 1):
            raise UserError(
                f"engine tinker: the service has {', '.join(listed)}, but the study's model is"
                f" {served or ' or '.join(names)}; set hardware.served_model to the name that the service uses"
            )
        self.model = served or alike[0]
        #: Before this time no sample is sent.
        self._pause_ends = 0.0

    @cached_property
    def client(self) -> Any:
        client = sdk().ServiceClient()
        holder = answered(lambda: client.holder)
        # without credit, the SDK itself would wait for an hour
        impatient = {"billing_exception_max_pause_duration_sec": 0}
        holder._client_config = holder.get_client_config().model_copy(update=impatient)
        holder.aclient = self._noting_pauses(holder.aclient)
        return client

    @cached_property
    def rest(self) -> Any:
        return answered(lambda: sdk().RestClient())

    def new_model(self, config: LearnerConfig) -> Any:
        layers = frozenset(config.target_modules)
        parts = {"train_attn": "q_proj" in layers, "train_mlp": "up_proj" in layers, "train_unembed": False}
        start = {"base_model": self.model, "rank": config.lora_rank, "seed": config.seed, **parts}
        return answered(lambda: self.client.create_lora_training_client(**start))

    def attached(self, like: Any, session: str, model: str, number: int) -> Any:
        """Return the client of a model that an earlier session trained. Raise Gone if the service lost the model.
        number: that of the model's next request. like: any client of a model."""
        shared = self.client.holder
        holder = type(shared).get_shadow_holder(session, shared.shadow_config)

        async def alive() -> None:
            from tinker.lib import client_connection_pool_type as pools  # pyright: ignore[reportMissingImports]

            with holder.aclient(pools.ClientConnectionPoolType.SESSION) as client:
                await client.service.session_heartbeat(session_id=session)

        answered(lambda: holder.run_coroutine_threadsafe(alive()), "the session of the last step has ended")
        client = type(like)(holder, 0, model, info=like._info)
        client._request_id_counter = client._turn_counter = number
        return client

    def adapter_urls(self, model: Any, name: str, seconds: int) -> dict[str, str]:
        """Save a model's adapter on the service for this number of seconds, and return file name → URL."""
        path = answered(lambda: model.save_weights_external(name, ttl_seconds=seconds)).path
        return answered(lambda: self.rest.get_external_weights_urls(path)).urls

    def check_alpha(self, config: LearnerConfig) -> None:
        """Raise UserError if the service trains with another LoRA alpha. Skip the check if it gives out no adapters."""
        urls = self.adapter_urls(self.new_model(config), "alpha", 3600)
        if "adapter_config.json" in urls:
            refuse_other_alpha(answered(lambda: httpx.get(urls["adapter_config.json"]).json())["lora_alpha"], config)

    def sampler(self, gone: str, **named: str) -> Any:
        """Return a sampling client. The client sends no request while the service asks to wait; the SDK alone would try
        again after a second. gone: see `answered`."""
        sampler = answered(lambda: self.client.create_sampling_client(**named), gone)
        send = sampler._send_asample_request

        async def patiently(*args: Any) -> Any:
            await asyncio.sleep(max(0.0, self._pause_ends - time.monotonic()))
            return await send(*args)

        sampler._send_asample_request = patiently
        return sampler

    def _noting_pauses(self, clients: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap the SDK's pool of HTTP clients, so that Retry-After is noticed."""

        @contextmanager
        def noting(kind: Any) -> Iterator[Any]:
            with clients(kind) as client:
                try:
                    yield client
                except sdk().RateLimitError as error:
                    text = error.response.headers.get("Retry-After", "")
                    wait = min(float(text), LONGEST_WAIT) if text.replace(".", "", 1).isdigit() else 0.0
                    self._pause_ends = max(self._pause_ends, time.monotonic() + wait)
                    raise

        return noting
