"""The problems of a study (pools, splits, benchmarks), which are made once for all arms, before any model is used."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from flows.study import profile
from flows.study.resolve import PoolInputs, Study
from storage.artifacts.schemas import Benchmark, Calibrations, Pool, Splits
from tasks.domain.problems.problems import HeldOut
from tasks.embedding import EncoderSpec
from tasks.partitions import calibrate_partitions
from tasks.pool import build_pool, choose_benchmark, keep_clear, make_synthetic_pool, split_pool


@dataclass(frozen=True, slots=True)
class Problems:
    """A pool and its split."""

    pool: Pool
    splits: Splits


@dataclass(frozen=True, slots=True)
class Prepared:
    """All problems of a study. lessons: by name. benchmarks: each pool, with the problems chosen from it. calibration:
    the similarity above which two traces count as equal. The calibration is None unless a training needs it."""

    studied: Problems
    lessons: Mapping[str, Problems]
    benchmarks: tuple[tuple[Pool, Benchmark], ...]
    calibration: Calibrations | None


def prepare(study: Study) -> Prepared:
    """Make pools and splits, and for each benchmark the problems that no arm of this study trains on. Artifacts that
    are needed twice, such as a lesson on the study's own pool, are made once."""
    p = study.profile

    @cache
    def built(inputs: PoolInputs) -> Pool:
        return build_pool(sources=inputs.sources, policy=inputs.policy)

    @cache
    def made_up(per_source: int, seed: int, levels: tuple[int, ...]) -> Pool:
        return make_synthetic_pool(per_source=per_source, seed=seed, levels=levels)

    @cache
    def cut(pool: Pool, heldout_per_source: int | HeldOut, seed: int) -> Problems:
        return Problems(pool, split_pool(pool=pool, heldout_per_source=heldout_per_source, seed=seed))

    def problems(name: str, wanted: profile.Pool) -> Problems:
        inputs = study.pools[name]
        levels = tuple(map(int, wanted.levels))
        pool = built(inputs) if inputs.sources else made_up(wanted.synthetic, wanted.seed, levels)
        return cut(pool, wanted.heldout_per_source, wanted.split_seed)

    studied = problems("", p.pool)
    taught = {x.name: problems(x.name, x.pool) for x in p.lessons if x.name in study.pools}
    clear = dict[Problems, Problems]()
    for some in dict.fromkeys(taught.values()):
        named = " and ".join(name for name in taught if taught[name] == some)
        kept = keep_clear.titled(f"keep {named} clear of held-out")(
            pool=some.pool, splits=some.splits, studied=studied.pool, heldout=studied.splits
        )
        clear[some] = Problems(some.pool, kept)
    lessons = {name: clear[some] for name, some in taught.items()}  # no near-duplicates of held-out problems
    trained = (studied, *lessons.values())
    chosen = []
    for b in p.benchmarks:
        pool = built(study.benchmarks[b.name])
        choice = choose_benchmark.titled(f"choose {b.name}")(
            name=b.name,
            pool=pool,
            trained=tuple(t.pool for t in trained),
            splits=tuple(t.splits for t in trained),
            levels=b.levels,
            per_level=b.per_level,
            seed=b.seed,
        )
        chosen.append((pool, choice))
    return Prepared(studied, lessons, tuple(chosen), calibrated(study) if p.trains_on_vectors else None)


def encoder_of(study: Study) -> EncoderSpec:
    e = study.profile.encoder
    return EncoderSpec(e.name, study.encoder_sha256, e.max_tokens, e.windows)


def calibrated(study: Study) -> Calibrations:
    e, labelled = study.profile.encoder, study.labelled_sha256
    return calibrate_partitions(
        encoder=e.name, weights_sha256=study.encoder_sha256, max_tokens=e.max_tokens, labelled=labelled
    )
