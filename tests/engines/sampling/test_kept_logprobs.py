"""Kept log-probs against a plain record of what was sampled, whatever the scheduler does with slots."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.engines.sampling.worker import KeptLogprobs, Slot, logits_arguments

SLOTS, POSITIONS = 3, 24


class Simulation:
    """Requests in slots as an engine runs them: admitted, stepped, pre-empted, ended; a step may sample one token more than
    is used, and a prompt computed in chunks samples tokens that are thrown away."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kept = KeptLogprobs(torch.full((SLOTS + 1, POSITIONS), 7.0))
        self.wanted = {f"r{i}": self.random.randint(1, 8) for i in range(8)}
        self.prompts = {name: self.random.randint(1, 10) for name in self.wanted}
        self.written: dict[str, list[float]] = {name: [] for name in self.wanted}
        self.running: dict[str, Slot] = {}
        self.free = list(range(SLOTS))
        self.ended: list[str] = []

    def write(self, slot: Slot, position: int, value: float) -> None:
        self.kept.table_SL[slot.index, position] = value

    def admit(self, name: str) -> None:
        prompt = self.prompts[name]
        prefill = prompt + len(self.written[name])
        slot = Slot(self.free.pop(self.random.randrange(len(self.free))), prompt, prefill, prompt + self.wanted[name])
        self.running[name] = slot
        if prefill > 1 and self.random.random() < 0.5:
            self.write(slot, self.random.randrange(prefill - 1), -99.0)

    def step(self, name: str, *, counted: bool = True) -> None:
        slot, value = self.running[name], -self.random.random()
        self.write(slot, slot.prompt - 1 + len(self.written[name]), value)
        if counted:
            self.written[name].append(value)

    def leave(self, name: str) -> None:
        slot = self.running.pop(name)
        self.kept.release(name, slot)
        self.free.append(slot.index)

    def run(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        todo = list(self.wanted)
        while len(found) < len(self.wanted):
            going = [n for n in self.running if n not in self.ended]
            event = self.random.random()
            if todo and self.free and event < 0.4:
                self.admit(todo.pop(0))
            elif going and event < 0.5:
                name = self.random.choice(going)
                if len(self.written[name]) < self.wanted[name] and self.random.random() < 0.5:
                    self.step(name, counted=False)
                self.leave(name)
                todo.append(name)
            elif going and event < 0.9:
                name = self.random.choice(going)
                self.step(name)
                if len(self.written[name]) == self.wanted[name] or self.random.random() < 0.2:
                    self.ended.append(name)
            elif self.ended:
                name = self.random.choice(self.ended)
                if name in self.running and self.random.random() < 0.5:
                    self.leave(name)
                elif name not in found:
                    running = {name: self.running[name]} if name in self.running else {}
                    found[name] = self.kept.take({name: len(self.written[name])}, running).tolist()
        for name in list(self.running):
            self.leave(name)
        return found


@given(st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_every_rollout_gets_its_own(seed: int) -> None:
    simulation = Simulation(seed)
    found = simulation.run()
    for name, values in simulation.written.items():
        assert found[name] == pytest.approx(values), name
    assert not simulation.kept.segments and not simulation.kept.taken


def test_what_was_never_sampled_is_an_error() -> None:
    kept = KeptLogprobs(torch.zeros(3, 10))
    with pytest.raises(KeyError, match="x"):
        kept.take({"x": 1}, {})
    with pytest.raises(RuntimeError, match="9 tokens of request a"):
        kept.take({"a": 9}, {"a": Slot(0, 2, 2, 5)})


def test_the_sampler_of_the_locked_vllm_is_known() -> None:
    """vLLM 0.32 has other arguments than 0.26, which a GPU showed first."""
    sampler = pytest.importorskip("vllm.v1.worker.gpu.sample.sampler").Sampler
    names = logits_arguments(sampler)
    assert names and {"logits", "pos", "seq_lens_upper_bound_np"} <= {*names}
