"""Problems: identity, canonical golds, answer types, and the rows of a pool."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from storage.errors import UserError
from tasks.domain.grading.formulas import number
from tasks.domain.grading.grading import GRADER_VERSION, Verdict, grade_completion
from tasks.domain.grading.shapes import Shape, shape
from tasks.domain.grading.texts import normalise
from tasks.domain.problems.duplicates import clusters, near_duplicates
from tasks.domain.problems.gold_check import Finding, Grade, findings_of_gold, findings_of_kind, findings_of_text
from tasks.domain.problems.sources import SOURCES
from tasks.domain.scaffolds import BARE, MATH

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """Rules that decide which problems a pool keeps.

    on_issue: `exclude` or `keep` problems with a finding of severity `exclude`. also_exclude: codes of further findings
    that exclude. limit: the largest number of problems. draw_seed: seed of the random choice for a limited pool; None
    takes the first problems. grader: version that checked the golds. answer_kinds: kinds of the study's arms; each gold
    must be valid for all of them. Golds are normalised only if one of these kinds is mathematics.
    """

    on_issue: str = "exclude"
    also_exclude: tuple[str, ...] = ()
    limit: int | None = None
    grader: str = field(default_factory=lambda: GRADER_VERSION)  # a factory, so that recipes always store it
    answer_kinds: tuple[str, ...] = (MATH,)
    draw_seed: int | None = None

    def in_pool_order(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the problems in the pool's order. A hash of seed and problem decides, so all machines agree."""
        if self.limit is None or self.draw_seed is None:
            return rows
        return sorted(rows, key=lambda row: _hash(f"{self.draw_seed}:{problem_id(row['problem'])}"))

    def excludes(self, finding: Finding) -> bool:
        return finding.code in self.also_exclude or (finding.severity == "exclude" and self.on_issue == "exclude")


def problem_id(problem: str) -> str:
    """Return the hash of a problem's text. White space and Unicode composition do not change it.

    The text is normalised to NFC. NFKC would turn powers, indices and fractions into plain digits.

    >>> problem_id("Add 1 and 2.") == problem_id(" Add  1 and 2.\\n") != problem_id("Add 1 and 3.")
    True
    >>> problem_id("Find 2⁵.") == problem_id("Find 25.")
    False
    """
    return _hash(re.sub(r"\s+", " ", unicodedata.normalize("NFC", problem)).strip())[:16]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def canonical_gold(gold: str) -> str:
    r"""Return the gold in the spelling that is used for comparison, with numbers in plain form.

    >>> canonical_gold("142.0"), canonical_gold("023"), canonical_gold("69$,$84"), canonical_gold("100,200")
    ('142', '23', '69, 84', '100200')
    """
    text = normalise(gold)
    found = number(text)
    if found is not None and found.unit is None:
        if found.value.denominator == 1:
            return str(found.value.numerator)
        if found.place is not None:
            return re.sub(r"0+$", "", text.replace(",", ""))
        return text
    parsed = shape(text)
    if parsed.kind == "list" and all(i.kind == "scalar" for i in parsed.items) and "=" not in text and "pm" not in text:
        return ", ".join(item.text for item in parsed.items)
    return text


def answer_type(gold: str) -> str:
    r"""Return the type of a gold: integer, rational, expression, tuple, set, list, interval, equation or text.

    >>> [answer_type(g) for g in ("7", r"\frac{1}{2}", "2n", "(1,2)", r"\{1,2\}", "1, 3", "[0,1)", "f(x)=x", "even")]
    ['integer', 'rational', 'expression', 'tuple', 'set', 'list', 'interval', 'equation', 'text']
    """
    parsed = shape(gold)
    if parsed.kind == "scalar":
        return _scalar_type(parsed)
    if parsed.kind == "relation":
        ordered = not set(parsed.marks) & {"=", r"\equiv"}
        return "interval" if ordered else "equation"
    return {"choice": "list", "union": "interval", "matrix": "tuple"}.get(parsed.kind, parsed.kind)


def _scalar_type(scalar: Shape) -> str:
    found = number(scalar.text)
    if found is not None:
        return "integer" if found.value.denominator == 1 and found.unit != "%" else "rational"
    words = re.sub(r"\\(?:text|mathrm|textbf|mbox) ?\{([^{}]*)\}", r"\1", scalar.text)
    worded = re.fullmatch(r"[A-Za-z ,.'()-]*[A-Za-z]{2}[A-Za-z ,.'()-]*", words) and not re.search(r"[a-z]\(", words)
    return "text" if worded and ("\\" in scalar.text or len(words) > 2) else "expression"


def grade_exactly(probes: Sequence[tuple[str, str, str, str]]) -> list[Verdict]:
    """Grade (answer form, answer, gold, answer kind) tuples, each in a completion of that form."""
    verdicts = []
    for form, answer, gold, kind in probes:
        scaffold = replace(BARE[form], answer_kind=kind)
        verdicts.append(grade_completion(scaffold, scaffold.answer_in_form(answer, trace=""), gold, "stop"))
    return verdicts


def pool_rows(
    rows: Sequence[Row], grade: Grade = grade_exactly, policy: PoolPolicy | None = None, kept_out: Sequence[str] = ()
) -> tuple[list[Row], list[Row]]:
    """Return rows of (Pool, PoolIssues). rows: problem, gold, source, source_id; optional year, level, subject.
    kept_out: texts of evaluation problems. Exact and near-duplicates of evaluation problems are always excluded."""
    policy = policy or PoolPolicy()
    ready = [_problem(row, policy.answer_kinds) for row in rows]
    golds = [(p["gold"], p["gold_raw"], p["problem"]) for p in ready]
    by_kind = [findings_of_gold(golds, grade)] if MATH in policy.answer_kinds else []
    others = [kind for kind in policy.answer_kinds if kind != MATH]
    by_kind += [findings_of_kind([p["gold"] for p in ready], kind, grade) for kind in others]
    found = [findings_of_text(p["problem"]) for p in ready]
    for of_one in by_kind:
        for findings, more in zip(found, of_one, strict=True):
            findings += more
    _add_duplicates(ready, found)
    for pair in near_duplicates([p["problem"] for p in ready], kept_out) if kept_out else ():
        code = "evaluation_problem" if pair.similarity == 1 else "near_evaluation_problem"
        found[pair.first].append(
            Finding(code, "exclude", f"similarity {pair.similarity:.2f} to a kept-out problem", forced=True)
        )
    kept, issues = [], []
    for problem, findings in zip(ready, found, strict=True):
        dropped = any(f.forced or policy.excludes(f) for f in findings)
        about = {name: problem[name] for name in ("problem_id", "source_id", "source")}
        for f in findings:
            issue = {"code": f.code, "severity": f.severity, "detail": f.detail}
            issues.append(about | issue | {"excluded": dropped and (f.forced or policy.excludes(f))})
        if not dropped and (policy.limit is None or len(kept) < policy.limit):
            kept.append(problem)
    names = [p["problem_id"] for p in kept]
    linked = clusters(names, near_duplicates([p["problem"] for p in kept]))
    for problem, cluster in zip(kept, linked, strict=True):
        problem["cluster"] = cluster
    return kept, issues


def _problem(row: Row, kinds: Sequence[str]) -> Row:
    gold = canonical_gold(row["gold"]) if MATH in kinds else row["gold"].strip()
    return {
        "problem_id": problem_id(row["problem"]),
        **{name: row[name] for name in ("source", "source_id", "problem")},
        "gold": gold,
        "gold_raw": row["gold"],
        "answer_type": answer_type(gold) if MATH in kinds else kinds[0].partition("@")[0],
        "cluster": "",
        **{name: row.get(name) for name in ("year", "level", "subject")},
    }


def _add_duplicates(problems: Sequence[Row], found: list[list[Finding]]) -> None:
    first: dict[str, Row] = {}
    for problem, findings in zip(problems, found, strict=True):
        other = first.setdefault(problem["problem_id"], problem)
        if other is problem:
            continue
        same = other["gold"] == problem["gold"]
        code = "duplicate" if same else "duplicate_with_other_gold"
        detail = f"same text as {other['source_id']}" + ("" if same else f", whose gold is {other['gold']}")
        findings.append(Finding(code, "exclude", detail, forced=True))


# ---- held-out problems of a split

#: How many problems of a source are held out, if not a number.
HeldOut = Literal["all"]


def reserved_sources(counts: Mapping[str, int]) -> set[str]:
    """Return the evaluation-only sources of a pool that also has others. All problems of such a source are held out."""
    return {name for name in counts if len(counts) > 1 and name in SOURCES and SOURCES[name].eval_only}


def heldout_of(counts: Mapping[str, int], heldout_per_source: int | HeldOut) -> Counter[str]:
    """Return how many problems of each source are held out. Raise UserError if a source would keep none.

    >>> heldout_of({"math500": 500, "amc": 83, "aime24": 60}, 50)
    Counter({'math500': 500, 'amc': 50, 'aime24': 50})
    """
    if heldout_per_source == "all":
        return Counter(counts)
    reserved = reserved_sources(counts)
    for source, count in counts.items():
        if 0 < heldout_per_source >= count and source not in reserved:
            raise UserError(
                f"pool.heldout_per_source: the study holds out {heldout_per_source} problems of each source, but"
                f" {source} has only {count} in this pool; hold out fewer, or raise pool.limit if it is set"
            )
    return Counter({name: n if name in reserved else heldout_per_source for name, n in counts.items()})


def of_split(problems: pa.Table, splits: pa.Table, split: str | None) -> pa.Table:
    """Return the problems of one split, in the pool's order; split None returns all problems."""
    if split is None:
        return problems
    chosen = {row["problem_id"] for row in splits.to_pylist() if row["split"] == split}
    return problems.filter(pa.array([p in chosen for p in problems["problem_id"].to_pylist()], pa.bool_()))
