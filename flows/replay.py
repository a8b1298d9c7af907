"""Import the published study's files as artifacts, and recompute its figures from them."""

import hashlib
from pathlib import Path
from typing import Any

from flows.running.sessions import Listener, silent, stages_on
from storage.artifacts.fingerprint import file_digest
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.runs import note_planned
from tasks.measures.bands import cross_bands
from tasks.measures.diversity import compare_diversity
from tasks.measures.pass_at_k import compare_solved, contrast_pass_at_k, estimate_pass_at_k
from tasks.published.checks import EVALUATIONS, VARIANTS, window_of
from tasks.published.importing import (
    PublishedFile,
    PublishedFolder,
    audit_published,
    check_tokens,
    import_bands,
    import_designs,
    import_diversity,
    import_groups,
    import_pool,
    import_pools,
    import_series,
    import_splits,
    import_trajectory,
)

POOL_FILES = ("heldout_eval", "panel_train", "thinking_train", "heldout_aux")
#: slice → (folders of the evaluations of panel and thinking, largest k in the publication)
SLICES = {
    "math500_stratified": ("eval_math500_vibecheck/math_final_panel", "eval_math500_vibecheck/thinking_native", 4),
    "math500_l5": ("eval_math500_vibecheck/panel_l5_full", "eval_math500_vibecheck/thinking_l5_full", 4),
    "aime": ("eval_aime_vibecheck/aime_panel_postmath_n16", "eval_aime_vibecheck/aime_thinking_n16", 16),
}
TRAIN_GROUP_SIZE = 16
NEEDED = (
    "data/multipersona_gsm8k/manifest.json",
    *(f"data/olympiad_pool/{name}.jsonl" for name in POOL_FILES),
    *(f"reports/variance_band/{arm}_g8/per_problem.jsonl" for arm in ("panel", "thinking")),
    *(f"reports/{folder}/per_problem.jsonl" for folder in VARIANTS),
    *(f"reports/{folder}/summary.json" for folder in (*VARIANTS, *EVALUATIONS, "token_efficiency")),
    *(f"reports/olympiad_panel_only/{n}.jsonl" for n in ("heldout_trajectory", "train_per_batch", "diversity_proxy")),
)
#: Refs by the name of the result. Slices and diversity folders have one ref each.
Replayed = dict[str, Any]


def replay(folder: Path, store: Store, listener: Listener = silent) -> Replayed:
    """Import the files of a folder, and analyse them. Raise UserError for another folder, and for a missing or damaged
    file."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the folder that holds the published data/ and reports/")
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder}: {len(missing)} of {len(NEEDED)} published files are missing, for example {missing[0]}; give the"
            " folder that holds data/ and reports/"
        )
    store.prepare()
    files = {name: PublishedFile(name, file_digest(folder / name)) for name in NEEDED}
    whole = _digest(folder)
    places = {f.sha256: folder / name for name, f in files.items()} | {whole.sha256: folder}
    with stages_on(store, listener, places=places) as current:
        replayed = _dag(folder, files, whole)
    note_planned(store.root, "published", (step.ref for step in current.steps))
    return replayed


def _digest(folder: Path) -> PublishedFolder:
    lines = [f"{p.relative_to(folder).as_posix()}:{file_digest(p)}" for p in sorted(folder.rglob("*.json*"))]
    return PublishedFolder(hashlib.sha256("\n".join(lines).encode()).hexdigest())


def _dag(folder: Path, files: dict[str, PublishedFile], whole: PublishedFolder) -> Replayed:
    pool_files = tuple(files[f"data/olympiad_pool/{name}.jsonl"] for name in POOL_FILES)
    bands = tuple(
        import_bands(file=files[f"reports/variance_band/{arm}_g8/per_problem.jsonl"], arm=arm)
        for arm in ("panel", "thinking")
    )
    pool, splits = import_pool(files=pool_files), import_splits(heldout=pool_files[0], others=pool_files[1:])
    pools, designs = import_pools(files=pool_files), import_designs(folder=whole)
    diversities = {
        name: tuple(
            import_diversity(
                file=files[f"reports/{name}/per_problem.jsonl"], label=label, arm=arm, window=window_of(folder, name)
            )
            for label, arm in variants.items()
        )
        for name, (_, variants) in VARIANTS.items()
    }
    groups = {
        name: import_groups(file=files[f"reports/{name}/summary.json"], arm=arm)
        for name, (arm, _) in EVALUATIONS.items()
    }
    pairs = {name: (groups[a], groups[b]) for name, (a, b, _) in SLICES.items()}
    run = "reports/olympiad_panel_only"
    audit = audit_published(
        folder=whole,
        designs=designs,
        pool=pool,
        splits=splits,
        pools=pools,
        bands=bands,
        diversities=tuple(r for refs in diversities.values() for r in refs),
        evaluations=tuple(groups.values()),
        train_group_size=TRAIN_GROUP_SIZE,
    )
    ks = {name: tuple(range(1, k + 1)) for name, (_, _, k) in SLICES.items()}
    return {
        "bands": bands,
        "crosstab": cross_bands(bands=bands, train_group_size=TRAIN_GROUP_SIZE),
        "splits": splits,
        "pools": pools,
        "curves": import_trajectory(trajectory=files[f"{run}/heldout_trajectory.jsonl"], pools=pools),
        "series": import_series(
            steps=files[f"{run}/train_per_batch.jsonl"], spread=files[f"{run}/diversity_proxy.jsonl"]
        ),
        "tokens": check_tokens(
            tokens=files["reports/token_efficiency/summary.json"], math=pairs["math500_l5"], aime=pairs["aime"]
        ),
        "designs": designs,
        "audit": audit,
        "diversities": diversities,
        "comparisons": {name: compare_diversity(diversities=refs) for name, refs in diversities.items()},
        "passk": {name: estimate_pass_at_k(rollouts=refs, ks=ks[name]) for name, refs in pairs.items()},
        "contrasts": {name: contrast_pass_at_k(rollouts=refs, ks=ks[name]) for name, refs in pairs.items()},
        "solved_by": {name: compare_solved(rollouts=refs) for name, refs in pairs.items()},
    }


def rows_of(store: Store, replayed: object) -> Any:
    """Return a replay's result, with the rows of each artifact in place of its ref."""
    if isinstance(replayed, dict):
        return {name: rows_of(store, part) for name, part in replayed.items()}
    if isinstance(replayed, tuple):
        return [rows_of(store, part) for part in replayed]
    assert isinstance(replayed, Ref)
    return store.read(replayed).to_pylist()
