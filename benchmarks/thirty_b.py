"""docs/results/thirty-b-shape.md: what a 30B mixture takes on 1, 2, 4 and 8 H200s, from what two of them measured.

    python -m benchmarks.thirty_b --published FOLDER

Reads docs/results/thirty-b-shape/measured.json, which holds what the commands that it names printed. A step's sampling on
more engines is computed: its lengths, drawn as in the measured steps, are shared out, and an engine takes at each position
as long as it did with so many rollouts at once.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.published_lengths import problem_lengths, screening_lengths
from benchmarks.thirty_b_gpus import PUBLISHED_STEP, STEPS, price_of_paper, table, two_gain
from benchmarks.thirty_b_lengths import CAP, alone, by_rollouts, covered, drawn, mean_interval, screened, thinking_step
from benchmarks.thirty_b_tail import tail
from benchmarks.thirty_b_thinking import step_of_thinking, thinking
from flows.study.prices import DEVICES

HERE = Path("docs/results/thirty-b-shape")
#: Tokens at most, rollouts of a problem, and problems of the published screening.
SCREENED_CAP, SCREENED_SIZE, SCREENED_PROBLEMS = 8192, 8, 877
#: Of the panel's, in seconds.
PUBLISHED_PANEL = 5439.1
LAYERS = 48
#: As a copy on an H200 counts bytes; what is read at each position.
COPY_GB_A_SECOND, WEIGHTS_GB = 4300, 61


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE.with_suffix(".md"))
    args = parser.parse_args()
    known = json.loads((HERE / "measured.json").read_text())
    args.out.write_text(page(known, args.published, (HERE / "peers.md").read_text()))
    print(args.out)


def screened_lengths(published: Path, arm: str) -> list[int]:
    """Of 877 x 8, with AIME's lengths."""
    return [length for group in _groups(published, arm) for length in group]


def _groups(published: Path, arm: str, again: int | None = None) -> list[list[int]]:
    return screening_lengths(published, arm, SCREENED_PROBLEMS, SCREENED_SIZE, SCREENED_CAP, again)


def at_rate(published: Path, arm: str, rate: float) -> tuple[float, float, float]:
    """(seconds at so many tokens a second, the ends of its interval as problems may be others)."""
    tokens = np.array([sum(group) for group in _groups(published, arm)])
    others = np.random.default_rng(0).integers(0, len(tokens), (2000, len(tokens)))
    low, high = np.quantile(tokens[others].sum(1), (0.025, 0.975)) / rate
    return float(tokens.sum() / rate), float(low), float(high)


def screening(known: dict[str, Any], published: Path) -> str:
    """What the panel's takes at the rate of its middle, by how many rollouts are decoded at once; and with its end."""
    panel, kernels = known["screening"], known["kernels"]
    ms = by_places(known)
    takes = [(of, at_rate(published, "panel", of["tokens_per_second"])) for of in panel["slices"]]
    rates = [
        f"{of['places']} at once {of['tokens_per_second']:,} tokens/s, or {seconds:.0f} s [{low:.0f}, {high:.0f}] for 877 x 8"
        for of, (seconds, low, high) in takes
    ]
    best, first = panel["slices"][-1], panel["at_the_start"]
    times = PUBLISHED_PANEL / takes[-1][1][0]
    whole = screened(screened_lengths(published, "panel"), best["places"], ms)
    ends, aime = with_other_problems(published, best["places"], ms), len(problem_lengths(published, "panel"))
    return (
        f"- **Screening** of the panel on one GPU (`{panel['command']}`; lengths as the panel's on AIME), from when as many rollouts have ended as there are places until the last one begins, so that those under way are of every age,"
        f" {panel['mean_age']:,} tokens in the mean: {'; '.join(rates)}, the interval being that of the lengths. That would be {times:.1f} times faster than the published {PUBLISHED_PANEL:,.0f} s, which are of all of it: with its end, in which fewer and fewer are"
        f" decoded, it takes **{whole:.0f} s** in the order drawn, computed by these and the steps' ms a position: **{PUBLISHED_PANEL / whole:.1f} times. A tenth is missed**; with others drawn from AIME's {aime} problems {ends[0]:.0f} to {ends[1]:.0f} s. A first slice of {first['rollouts']} rollouts that had all begun at once gave {first['tokens_per_second']:,} tokens/s in its first {first['seconds']} s, which was taken for a tenth: contexts"
        f" are shorter then than in the middle. Of the {1000 * best['places'] / best['tokens_per_second']:.0f} ms a position {whole_ms(kernels):.0f} are kernels, by {LAYERS} times a layer of a profile ({kernels['command']}):"
        f" {', '.join(f'{name} {us:.0f} us a layer' for name, us in kernels['layer_us'].items())}, {kernels['once_us'] / 1000:.1f} ms once; reading weights and cache alone takes {floor_ms(best['places'], panel['mean_age']):.0f} ms."
        f" So what is left is more rollouts at once, which the cache does not hold. The engine started in {panel['started']} s."
    )


def with_other_problems(published: Path, places: int, ms: dict[int, float]) -> tuple[float, float]:
    """Seconds of the panel's screening, 2.5 and 97.5 % of 100 in which AIME's problems are drawn anew."""
    takes = [
        screened([n for group in _groups(published, "panel", again) for n in group], places, ms) for again in range(100)
    ]
    low, high = np.quantile(takes, (0.025, 0.975))
    return float(low), float(high)


def by_places(known: dict[str, Any]) -> dict[int, float]:
    """Milliseconds a position in the middle of the panel's screening, by rollouts at once; few, of short contexts."""
    slices = known["screening"]["slices"]
    short = {n: value for n, value in by_rollouts(known["positions"]["ms"]).items() if n < slices[0]["places"]}
    return short | {of["places"]: 1000 * of["places"] / of["tokens_per_second"] for of in slices}


def rounded_cache(known: dict[str, Any], published: Path) -> str:
    """The panel's screening with keys and values in fp8. Its end, which was not measured, by those of the full cache."""
    fp8 = known["screening"]["fp8"]
    apart, places, rate = fp8["apart"], fp8["places"], fp8["tokens_per_second"]
    seconds, low, high = at_rate(published, "panel", rate)
    whole = screened(screened_lengths(published, "panel"), places, by_places(known) | {places: 1000 * places / rate})
    ends = with_other_problems(published, places, by_places(known) | {places: 1000 * places / rate})
    aime = len(problem_lengths(published, "panel"))
    kept = "kept by these lengths, and not shown for others" if ends[1] > PUBLISHED_PANEL / 10 else "kept"
    return (
        f'- **The same with keys and values in fp8** (`{fp8["command"]}`; in a study `screening.sampling.kv_cache = "fp8"` and `hardware.max_num_seqs = {places}`): twice as many at once, {places:,}, {rate:,} tokens/s in the same'
        f" middle ({fp8['seconds'][0]} to {fp8['seconds'][1]} s), or {seconds:.0f} s [{low:.0f}, {high:.0f}] for 877 x 8; with its end, computed as above and by the full cache's ms where fewer are left, **{whole:.0f} s: {PUBLISHED_PANEL / whole:.1f} times. A tenth is {kept}**: AIME has {aime} problems, and with others drawn from them it takes {ends[0]:.0f} to {ends[1]:.0f} s. It is a choice and no default: such rollouts are of a policy that is a"
        f" little another (log-probs of a small random mixture {apart['fp8']} from the learner's in the mean, {apart['full']} with a full cache: `{apart['test']}`), have names of their own, and are not trained on. The engine started in {fp8['started']} s, on a machine whose disk had just been given the model, which these seconds do not hold (of the published ones it is not said), and a study that trains afterwards starts one with a full cache."
    )


def whole_ms(kernels: dict[str, Any]) -> float:
    """Of a position, by what a layer's kernels take."""
    return (LAYERS * sum(kernels["layer_us"].values()) + kernels["once_us"]) / 1000


def floor_ms(places: int, mean_age: float) -> float:
    """Of a position, by bytes: all weights, and 96 KiB of cache for each token that is looked back on."""
    return (WEIGHTS_GB + places * mean_age * 96 * 1024 / 1e9) / COPY_GB_A_SECOND * 1000


def learner(known: dict[str, Any]) -> str:
    """Alone, and of two processes; the first step compiles."""
    alone_s, two_s = (known["train"][n][1:] for n in ("1", "2"))
    norms = [a / b - 1 for a, b in zip(known["gradients"]["2"], known["gradients"]["1"], strict=True)]
    return (
        f"- **Learner**: {median(alone_s):.1f} s for {known['tokens']:,} tokens, the median of four steps whose rollouts take {known['sampling']:.0f} s to come (`{known['command']}`): 9 s were asked for"
        f" 134,763. {known['waited_for_merging']:.1f} s were told before, by a profile whose rollouts were there at once: the merging of its weights, which goes on beside sampling, was waited for in the update.\n"
        f"- **Two processes of the learner**: {median(two_s):.2f} s for the same step, **{two_gain(known):.2f} times** faster (1.8 asked), by the medians; of four steps one took {max(two_s):.1f} s, which is not"
        f" explained, and by means it is {mean(alone_s) / mean(two_s):.2f} times. Norms of gradients differ by {max(map(abs, norms)):.0e} at most."
    )


def engines(known: dict[str, Any]) -> str:
    (one, both), (whole_one, whole_both) = known["full"], known["whole"]
    return (
        f"- **Two engines**, replicas on a GPU each (`{known['command']}`; rollouts cut at {known['cap']:,} tokens): {one:,} tokens/s of one and {both:,} of both while {known['places']} places each are taken, **{both / one:.2f}"
        f" times**; with the last rollouts, which decode alone, {whole_one:,} and {whole_both:,} (1.7 asked)."
    )


def shared_engine(known: dict[str, Any]) -> str:
    """One that two GPUs share, beside the same on one: for a model that one does not hold."""
    one, two = known["ms"]["1"], known["ms"]["2"]
    gains = [one[n] / two[n] for n in one]
    large = known["large"]
    return (
        f"- **One engine that two GPUs share** (`{known['command']}`; ms a position of one GPU and of two, without an adapter): {', '.join(f'{one[n]:.2f} and {two[n]:.2f} with {n} at once' for n in one)}: {min(gains):.2f} to {max(gains):.2f} times as fast,"
        f" where two engines give twice as many tokens. It is for a model that one GPU does not hold, and `hardware.spread` gives it then: a mixture of {large['layers']} layers ({large['gb']} GB) is refused on one H100 ({large['needs_gib']} GiB of"
        f" {large['has_gib']}) and on two of them samples all {large['rollouts']:,} rollouts of a study that trains nothing (`{large['command']}`). What it serves is what the learner computes (`{known['test']}`), adapters beside the weights."
    )


def killed(known: dict[str, Any]) -> str:
    second, third = known["step_2"], known["step_3"]
    return (
        f"- **Killed and gone on** with all {LAYERS} layers, learner and sampler (`{known['command']}`): kill -9 while step 2 was sampled, 4 s after step 1's checkpoint was on the disk; both GPUs were free 4 s later. The same"
        f" command again: engine up in {known['started'][1]:.0f} s ({known['started'][0]:.0f} the first time), goes on with step 2, {second['tokens']:,} tokens, in {second['wall']:.0f} s with the learner's start, and step 3, {third['tokens']:,} tokens,"
        f" in {third['wall']:.0f} s ({third['generate']:.1f} of them sampling, {third['train']:.1f} training beside the writing of step 2's checkpoint); KL of sampled and trained policy at most {max(known[s]['kl'] for s in ('step_1', 'step_2', 'step_3')):.1e}, learner at most"
        f" {third['trainer_gib']:.0f} GiB. Its last checkpoint found the disk full: 128 GB held the model, and three checkpoints of 20 GB are there at once. Such a training is refused before it samples since."
    )


def page(known: dict[str, Any], published: Path, peers: str) -> str:
    lengths = drawn(published)
    price = next(device.usd_per_hour for device in DEVICES if device.device == "H200")
    ms = by_rollouts(known["positions"]["ms"])
    steps, shallow = known["steps"]["rows"], known["twelve_layers"]
    out = [
        "# The published recipe at its own size: Qwen3-30B-A3B, 12,288 tokens",
        "",
        f"Made by `python -m benchmarks.thirty_b --published FOLDER` from `docs/results/thirty-b-shape/measured.json`: {known['measured']}.",
        "No weights of that size were at hand: random ones of the true shape answer what speed, memory and shapes ask, and every rollout ends at a length",
        "drawn from the published files: the panel's steps from its training, screenings and thinking from the evaluation on AIME. Nothing here says how well such a model reasons.",
        "",
        "## Five whole steps on two GPUs, learner on one and sampler on the other",
        "",
        f"`{known['steps']['command']}`. Seconds; the engine was up in {known['engine_start']:.0f}.",
        "",
        "| step | tokens | longest | sample | computed | train | hand-over written | in all | KL a token | learner GiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for step, own in zip(steps, lengths, strict=True):
        out.append(
            f"| {step['step']} | {step['tokens']:,} | {own.max():,} | {step['generate']:.1f} | {alone(own, ms):.1f} | {step['train']:.1f}"
            f" | {step['sync']:.2f} | {step['wall']:.1f} | {step['kl']:.1e} | {step['trainer_gib']:.0f} |"
        )
    later = np.array([step["wall"] for step in steps[1:]])
    taken, *ends = mean_interval(later)
    training, these = (np.array([alone(own, ms) for own in of]) for of in (drawn(published, STEPS), lengths[1:]))
    long = by_rollouts(known["long_contexts"]["ms"])
    (tokens, sampling), training_s = thinking_step(published, long), known["thinking_step"]["train"][1]
    over = mean(step["sync"] for step in steps[1:4]) + known["other_weights"]["seconds"][2] - 2
    hours, usd = price_of_paper()
    out += [
        "",
        f"Steps 2 to 5 take {taken:.1f} s in the mean [{ends[0]:.0f}, {ends[1]:.0f}]: 70 were asked, the published training took {PUBLISHED_STEP}. The first one holds compilation and"
        f" reading the learner's weights, the last one writes an adapter that is kept, in PEFT's format. Four steps vary ({min(later):.0f} to {max(later):.0f} s) with their longest rollout:"
        f" they alone do not show that 70 is kept to. Rollouts of these were long: *computed* as here, sampling takes {training.mean():.1f} s in the mean of {STEPS} steps of a training drawn alike, and {these.mean():.1f} in these, whose mean would then be {taken - these.mean() + training.mean():.0f} s. The"
        f" interval is by the t-distribution, as those below; of four of those {STEPS} drawn at random it holds their mean in {covered(training, len(later)):.0%}. *Computed* is what the lengths drawn say"
        f" ({', '.join(f'{own.sum():,}' for own in lengths)} tokens; where fewer were sampled some ended by themselves): ms a position at"
        f" {', '.join(f'{n} rollouts {value}' for n, value in ms.items())}.",
        "",
        learner(known["learner"]),
        f"- **Sampler**: {ms[128]} ms a position with 128 rollouts at once whose contexts are of 200 to 300 tokens, weights merged (16 were asked); {long[128]:.1f} with contexts of {known['long_contexts']['contexts'][0]:,}.",
        tail(lengths[1:], steps[1:], ms, known["shared_engine"]["ms"]),
        killed(known["killed"]),
        f"- **Hand-over**: written in {mean(step['sync'] for step in steps[1:4]):.2f} s; other weights are served, eight rollouts of eight tokens"
        f" included, after {known['other_weights']['seconds'][2]:.2f} s, the last of three turns (the others {known['other_weights']['seconds'][0]}, the first, and {known['other_weights']['seconds'][1]}). **2 s in all were asked, and {over:.2f} are missed**, within the eight rollouts. The adapter is merged into the learner's weights too, while it"
        " waits for rollouts: policy and sampler are one up to rounding, which is the KL above.",
        engines(known["engines"]),
        shared_engine(known["shared_engine"]),
        screening(known, published),
        rounded_cache(known, published),
        thinking(known["long_contexts"], screened_lengths(published, "thinking"), SCREENED_CAP),
        step_of_thinking(known, published),
        f"- **An adapter that is kept** is written beside the next step since: at twelve of the 48 layers the step that keeps one hands over in {shallow['sync'][-1]:.2f} s (others {shallow['sync'][1]:.2f});"
        f" that learner trains {shallow['tokens']:,} tokens in {shallow['train'][1]:.2f} s, peak {shallow['peak_gib']} GiB.",
        "",
        "## By number of GPUs",
        "",
        f"Seconds a step of the panel; two trainings of {STEPS} such steps, without evaluations; US$ at {price:.2f} a GPU and hour. **A training of thinking is longer, and no step of it was run whole**: AIME's"
        f" lengths cut at {CAP:,} are {tokens:,.0f} tokens a rollout in the mean ({np.mean(lengths[1:]):,.0f} in these steps), and by its two parts above a step takes at least {sampling + training_s:.0f} s:"
        f" {STEPS} of them at least {STEPS * (sampling + training_s) / 3600:.0f} h on two GPUs, US$ {STEPS * (sampling + training_s) / 3600 * 2 * price:.0f}.",
        "",
        *table(known, lengths, price),
        "",
        "More engines shorten a step little: its longest rollout is decoded alone in the end, at 5.2 ms a position. What helps is more arms at once.",
        "",
        f"A whole study as `varband plan paper` counts it, with lessons, screenings, evaluations and lengths assumed at 60 % of max_tokens, as neither arm has them in the published files: {hours:.0f} GPU-hours, US$ {usd:.0f}.",
        "",
        peers.rstrip(),
        "",
    ]
    return "\n".join(out)


if __name__ == "__main__":
    main()
