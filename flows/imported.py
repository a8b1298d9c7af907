"""Import rollouts of other tools as a study: write them into the ledger, with the verdicts of Varband's grader.

The model of an imported arm is identified by a hash of its rollouts, so a file that is imported twice is stored once. A
run of this study samples nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import pyarrow as pa
import tomli_w

from flows.problems import prepare
from flows.running.sessions import stages_of
from flows.study.request import Request, check_study_name
from flows.study.resolve import Study
from storage.artifacts.schemas import FROM_EMBEDDINGS
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import LEDGER, Ledger
from tasks.domain.policies import Policy
from tasks.domain.scaffolds import ARMS
from tasks.engines.problem_files import Row, read_problems
from tasks.engines.rollout_files import Foreign, files_of, read_rollouts
from tasks.evidence import names_of_measures
from tasks.rollouts import account_of, as_read_by, described

#: Words and signs. They are counted if some files have no token counts.
PIECE = re.compile(r"\w+|[^\w\s]")
HEAD = """\
# Written by `varband import`. `varband run {name}.toml` reports on these rollouts; nothing is sampled.
# {size} rollouts of each of {problems} problems: {files}
# `measures` has all that need no embeddings. Without that line the traces are embedded too.
"""


@dataclass(frozen=True, slots=True)
class ArmRollouts:
    """The rollouts of an arm, by problem in the order of the files. tool: the tool that sampled them. files: names."""

    arm: str
    tool: str
    files: str
    groups: Mapping[str, Sequence[Foreign]]

    def rollouts(self, keys: Iterable[str], size: int) -> list[Foreign]:
        return [one for key in keys for one in self.groups[key][:size]]

    def digest(self, size: int, keys: Iterable[str]) -> str:
        rows = [[key, one.completion] for key in keys for one in self.groups[key][:size]]
        return hashlib.sha256(orjson.dumps([self.arm, rows])).hexdigest()

    def in_words(self) -> ArmRollouts:
        """Return the arm with lengths in words, which can be compared with files without token counts."""

        def counted(one: Foreign) -> Foreign:
            return replace(one, num_tokens=len(PIECE.findall(one.completion)), token_ids=(), logprobs=())

        return replace(self, groups={key: [*map(counted, group)] for key, group in self.groups.items()})


@dataclass(frozen=True, slots=True)
class Entered:
    """The rollouts of one arm in the ledger. judged: number of rollouts that have a verdict of the other tool.
    disagreements: number of those where the verdicts differ."""

    arm: str
    rollouts: int
    new: int
    correct: int
    judged: int
    disagreements: int


@dataclass(frozen=True, slots=True)
class Import:
    """The result of an import. study: the file that was written. notes: what was left out, and what is unknown."""

    study: Path
    entered: Sequence[Entered]
    notes: Sequence[str]


def import_rollouts(files: Sequence[Path], arms: Sequence[str], pool: Path | None, name: str, store: Store) -> Import:
    """Enter the rollouts of files (or of the files in folders), and write the study NAME.toml and its
    NAME-problems.jsonl. If a file is wrong, raise UserError before anything is written. arms: the arm of each file, or
    one for all; by default the arm in the file, or the file's name. pool: problems with golds."""
    check_study_name(name)
    files = [file for path in files for file in files_of(path)]
    if len(arms) not in (0, 1, len(files)):
        raise UserError(
            f"{len(files)} files, but {len(arms)} --arm names: give one per file, one for all files, or none"
        )
    read = [(path, *read_rollouts(path)) for path in files]
    known = {_plain(row["problem"]): row for row in read_problems(pool, pool.stem)} if pool else {}
    problems: dict[str, Row] = {}
    groups: dict[str, dict[str, list[Foreign]]] = defaultdict(lambda: defaultdict(list))
    origins: dict[str, dict[Path, str]] = defaultdict(dict)
    notes = list[str]()
    named = arms if len(arms) == len(files) else [arms[0] if arms else ""] * len(files)
    for (path, tool, rollouts), arm in zip(read, named, strict=True):
        lost = Counter[str]()
        for one in rollouts:
            if isinstance(row := _problem_of(one, known), str):
                lost[row] += 1
                continue
            problems.setdefault(key := _plain(row["problem"]), row)
            entered = _name(arm or one.arm or path.stem)
            groups[entered][key].append(one)
            origins[entered][path] = tool
        notes += [f"{path}: {n} of {len(rollouts)} rollouts are left out: {why}" for why, n in lost.items()]
        if sum(lost.values()) == len(rollouts):
            raise UserError("; ".join(notes) or f"{path}: has no rollouts")
    if not arms and (again := [arm for arm, paths in origins.items() if len(paths) > 1]):
        raise UserError(f"{', '.join(again)}: several files have this arm; give each its own --arm, or one for all")
    if len(arms) == 1 and len(tools := sorted({tool for _, tool, _ in read})) > 1:
        raise UserError(f"--arm {arms[0]} would mix several tools ({', '.join(tools)}): give one --arm per file")
    imported = [ArmRollouts(arm, *_origin(origins[arm]), of_arm) for arm, of_arm in groups.items()]
    keys, size = _common(imported)
    notes += _left_out(imported, keys, size)
    uncounted = [one.arm for one in imported if any(x.num_tokens is None for x in one.rollouts(keys, size))]
    if uncounted:
        notes.append(f"{', '.join(uncounted)}: without token counts; all lengths are numbers of words and signs")
        imported = [one.in_words() for one in imported]
    text = _study_text(name, imported, keys, size, counted=not uncounted)
    study_file, problem_file = Path(f"{name}.toml"), Path(f"{name}-problems.jsonl")
    lines = [orjson.dumps({**problems[key], "source": name, "source_id": f"{n:05d}"}) for n, key in enumerate(keys)]
    written = {problem_file: b"\n".join(lines) + b"\n", study_file: text.encode()}
    for path, content in written.items():
        if path.exists() and path.read_bytes() != content:
            raise UserError(f"{path} already exists with other content: choose another --name")
    new = not problem_file.exists()
    problem_file.write_bytes(written[problem_file])
    try:
        study = Request(profile=str(study_file), text=text).study(store)
        entered = _enter(study, store, imported, size, len(keys), notes)
    except BaseException:
        if new:
            problem_file.unlink()
        raise
    study_file.write_bytes(written[study_file])
    return Import(study_file, entered, notes)


def _origin(tools: Mapping[Path, str]) -> tuple[str, str]:
    """Return the tools and the files of an arm, as texts. tools: by file."""
    names = [path.name for path in tools]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return " and ".join(sorted({*tools.values()})), ", ".join(names[:3]) + more


def _plain(problem: str) -> str:
    return " ".join(problem.split())


def _name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:60] or "arm"
    return f"imported-{name}" if name in ARMS else name


def _problem_of(one: Foreign, known: Mapping[str, Row]) -> Row | str:
    """Return the problem of a rollout, or why it has none. known: the pool's problems, by text."""
    text = _plain(one.problem or one.prompt)
    if not known:
        if not text:
            return "the file does not say which problem they answer; give --pool FILE"
        if not one.gold:
            return "they have no gold; give the problems with their golds by --pool FILE"
        return {"problem": one.problem or one.prompt, "gold": one.gold}
    if row := known.get(text):
        return row
    by_key = [row for row in known.values() if one.key and row["source_id"] == one.key]
    held = sorted((problem for problem in known if problem in _plain(one.prompt)), key=len)
    if by_key or held:
        return by_key[0] if by_key else known[held[-1]]
    return "their problems are not in the pool; give one that has them"


def _common(imported: Sequence[ArmRollouts]) -> tuple[list[str], int]:
    """Return the problems that all arms have, and the number of rollouts per problem that keeps the most rollouts.
    Raise UserError if the arms have no problem in common."""
    least = {
        key: min(len(one.groups[key]) for one in imported)
        for key in imported[0].groups
        if all(key in one.groups for one in imported)
    }
    if not least:
        raise UserError(
            "no problem is in all arms, so they cannot be compared: import each separately, or give one --arm for all"
        )
    size = max(set(least.values()), key=lambda g: (g * sum(n >= g for n in least.values()), g))
    return [key for key, n in least.items() if n >= size], size


def _left_out(imported: Sequence[ArmRollouts], keys: Sequence[str], size: int) -> Iterable[str]:
    for one in imported:
        if others := len(one.groups) - len(keys):
            yield f"{one.arm}: problems left out because not every arm has {size} rollouts of them: {others}"
        if beyond := sum(len(one.groups[key]) - size for key in keys):
            yield f"{one.arm}: {beyond} rollouts beyond {size} a problem are left out"
        rollouts = one.rollouts(keys, size)
        if not all(len(x.token_ids) for x in rollouts):
            yield f"{one.arm}: no token ids and log-probs: nothing can be trained on them, no likelihood is known"
        if unknown := sum(x.finish is None for x in rollouts):
            yield f"{one.arm}: {unknown} of {len(rollouts)} rollouts have no finish reason and count as finished"


def _study_text(name: str, imported: Sequence[ArmRollouts], keys: Sequence[str], size: int, *, counted: bool) -> str:
    lengths = [x.num_tokens or 0 for one in imported for x in one.rollouts(keys, size)]
    arms = [one.arm for one in imported]
    which = (
        f"which of {', '.join(arms[:-1])} and {arms[-1]} solves more?" if arms[1:] else f"what does {arms[0]} solve?"
    )
    plan = {"group_size": size, "sampling": {"max_tokens": max(1, *lengths), "seed": 0}}
    tables = {
        "base": "demo",
        "purpose": which if counted else f"{which} (lengths are numbers of words)",
        "seeds": [],
        "measures": sorted(names_of_measures() - {*FROM_EMBEDDINGS} - (set() if counted else {"tokens"})),
        "pool": {"sources": [f"{name}-problems.jsonl"], "synthetic": 0, "heldout_per_source": "all"},
        **dict.fromkeys(("screening", "evaluation", "final"), plan),
        "passk": {"ks": sorted({k for k in (1, 2, 4, 8, 16, 32, 64) if k < size} | {size})},
        "hardware": {"arms_at_once": 1},
        "scaffolds": {"imported": {"template": "{problem}", "trace_tag": "none", "answer_form": "final", "stop": []}},
        "arms": {
            one.arm: {"scaffold": "imported", "model": f"sha256:{one.digest(size, keys)}", "trained_as": "none"}
            for one in imported
        },
    }
    files = ", ".join(f"{one.files} ({one.tool})" for one in imported)
    return HEAD.format(name=name, size=size, problems=len(keys), files=files) + tomli_w.dumps(tables)


def _enter(
    study: Study, store: Store, imported: Sequence[ArmRollouts], size: int, problems: int, notes: list[str]
) -> list[Entered]:
    """Grade the rollouts, and append those that the ledger lacks, one shard per arm."""
    p, book, sampling = study.profile, Ledger(store.root), study.profile.final.sampling
    found, shards = list[Entered](), list[tuple[pa.Table, Policy, ArmRollouts]]()
    with stages_of(study, store):
        rows = store.read(prepare(study).studied.pool, ["problem_id", "source", "problem", "gold"]).to_pylist()
        if gone := problems - len(rows):
            notes.append(f"{gone} problems are left out by the checks of their golds: varband pool")
        for one in imported:
            policy = Policy(arm=one.arm, model=study.models[one.arm], scaffold=p.arm(one.arm).scaffold)
            taken = [(row, n, x) for row in rows for n, x in enumerate(one.groups[_plain(row["problem"])][:size])]
            table = pa.Table.from_pylist([_entry(row, n, x, policy, one) for row, n, x in taken], schema=LEDGER)
            graded = as_read_by(table, policy, table["gold"].to_pylist())
            there = book.keys(account_of(policy, sampling))
            new = [i for i, (row, n, _) in enumerate(taken) if (row["problem_id"], n) not in there]
            shards.append((graded.take(pa.array(new, pa.int64())), policy, one))
            ours = graded["correct"].to_pylist()
            judged = [(x.correct, right) for (_, _, x), right in zip(taken, ours, strict=True) if x.correct is not None]
            disagreements = sum(theirs != right for theirs, right in judged)
            found.append(Entered(one.arm, len(taken), len(new), sum(ours), len(judged), disagreements))
    for shard, policy, one in shards:
        about = described(policy, sampling) | {"imported": one.files, "tool": one.tool}
        if shard.num_rows:
            book.append(account_of(policy, sampling), shard, about)
    return found


def _entry(row: Row, n: int, one: Foreign, policy: Policy, imported: ArmRollouts) -> Row:
    return {
        "problem_id": row["problem_id"],
        "source": row["source"],
        "arm": policy.arm,
        "step": 0,
        "seed": 0,
        "rollout": n,
        "completion": one.completion,
        "tag_valid": False,
        "verdict": "no_answer",
        "reason": "",
        "correct": False,
        "grader_version": "",
        "finish": one.finish or "stop",
        "num_prompt_tokens": len(PIECE.findall(one.prompt)),
        "num_tokens": one.num_tokens,
        "logprob_sum": sum(one.logprobs) if len(one.logprobs) else None,
        "gold": row["gold"],
        "request_seed": 0,
        "prompt_ids": [],
        "token_ids": one.token_ids,
        "logprobs": one.logprobs,
        "engine": f"imported from {imported.tool}",
        "verdict_elsewhere": one.correct,
    }
