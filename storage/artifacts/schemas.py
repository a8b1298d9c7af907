"""One Arrow schema per kind of artifact: the data dictionary. A column means the same in every kind."""

from __future__ import annotations

import pyarrow as pa


def _schema(*fields: tuple[str, pa.DataType] | tuple[str, pa.DataType, bool]) -> pa.Schema:
    """Fields are required unless the third item says that null is a value they may take."""
    return pa.schema([pa.field(f[0], f[1], nullable=len(f) > 2 and bool(f[2])) for f in fields])


STR, INT, BIG, REAL, BOOL = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()
NULL = True

POOL = _schema(
    ("problem_id", STR),  # content hash of the normalised text
    ("source", STR),  # competition set
    ("source_id", STR),  # the uid under which the source publishes it
    ("problem", STR),
    ("gold", STR),  # canonical reference answer
    ("gold_raw", STR),  # as the source spells it
    ("answer_type", STR),  # integer | rational | expression | tuple | set | list | interval | equation | text
    ("cluster", STR),  # near-duplicates share it; a cluster stays on one side of a split
    ("year", INT, NULL),
    ("level", STR, NULL),
    ("subject", STR, NULL),
)
POOL_ISSUES = _schema(
    ("problem_id", STR),
    ("source_id", STR),
    ("source", STR),
    ("code", STR),  # machine-readable reason
    ("severity", STR),  # exclude | warn
    ("detail", STR),
    ("excluded", BOOL),  # what the profile's policy did with it
)
SPLITS = _schema(("problem_id", STR), ("source", STR), ("split", STR))  # train | heldout
#: Every problem of a benchmark's pool: is it asked, and if not, why.
BENCHMARK = _schema(
    ("benchmark", STR),
    ("problem_id", STR),
    ("source", STR),
    ("source_id", STR),
    ("level", STR, NULL),
    ("split", STR),  # benchmark | near_training | not_drawn | other_level
    ("near", STR, NULL),  # source_id of the training problem that it is or nearly is
    ("similarity", REAL, NULL),  # 1 = contained
)

VERDICT_FIELDS = (
    ("answer", STR, NULL),  # as extracted from the answer region
    ("canonical", STR, NULL),  # its canonical form
    ("verdict", STR),  # correct | wrong | no_answer | ambiguous | timeout | ungradable
    ("reason", STR),
    ("correct", BOOL),
    ("grader_version", STR),
)
ROLLOUTS = _schema(
    ("problem_id", STR),
    ("source", STR),
    ("arm", STR),
    ("adapter", STR, NULL),
    ("step", INT),  # policy; step 0 = no training
    ("seed", BIG),  # of the training behind the adapter; 0 without one
    ("rollout", INT),  # index in its group
    ("completion", STR),
    ("trace", STR, NULL),
    ("tag_valid", BOOL),
    *VERDICT_FIELDS,
    ("finish", STR),  # stop | length
    ("num_prompt_tokens", INT),
    ("num_tokens", INT),
    ("logprob_sum", REAL, NULL),  # of the sampled tokens under the behaviour policy
)
#: A ledger row is a rollout plus what training needs of it.
LEDGER = pa.schema(
    [
        *ROLLOUTS,
        pa.field("gold", STR, nullable=False),
        pa.field("request_seed", BIG, nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("engine", STR, nullable=False),
    ]
)
BANDS = _schema(
    ("problem_id", STR),
    ("source", STR),
    ("arm", STR),
    ("group_size", INT),
    ("num_correct", INT),
    ("band", STR),  # all_zero | variance | all_one
)
STEPS = _schema(
    ("arm", STR),
    ("seed", BIG),
    ("step", INT),
    ("reward_mean", REAL),
    ("correct_mean", REAL),
    ("tag_valid_mean", REAL),
    ("live_groups", REAL),  # share of the step's groups with a non-zero advantage
    ("all_zero", INT),
    ("variance", INT),
    ("all_one", INT),  # groups by band, of `correct`
    ("entropy", REAL, NULL),  # mean over trained tokens, nats; null if no live group
    ("length_mean", REAL),
    ("length_cv_within", REAL, NULL),
    ("truncated", REAL),
    ("ratio_mean", REAL, NULL),
    ("ratio_max", REAL, NULL),
    ("kl_behaviour", REAL, NULL),
    ("kl_start", REAL, NULL),  # k3 to where training started; null where the loss does not hold it
    ("masked_tokens", BIG),  # non-finite behaviour log-probs
    ("bounded_tokens", BIG),  # log-ratio above the bound of every loss: they carry no gradient through it
    ("loss", REAL, NULL),
    ("grad_norm", REAL, NULL),
    ("learning_rate", REAL),
    ("num_tokens", BIG),
    ("trained_tokens", BIG),  # each as often as it was trained on
    ("updates", INT),  # of the optimiser; 0 where no group is live: weights and moments are untouched
    ("skipped_updates", INT),  # gradients that were not finite
)
#: How often training used each problem.
EXPOSURE = _schema(
    ("arm", STR),
    ("seed", BIG),
    ("step", INT),
    ("problem_id", STR),
    ("source", STR),
    ("num_correct", INT),
    ("group_size", INT),
    ("live", BOOL),
)
EMBEDDINGS = pa.schema(
    [
        *_schema(
            ("problem_id", STR),
            ("source", STR),
            ("arm", STR),
            ("step", INT),
            ("seed", BIG),
            ("rollout", INT),
            ("window", STR),
            ("correct", BOOL),
            ("coverage", REAL),
            ("num_tokens", INT),
            ("num_chars", INT),
        ),
        pa.field("embedding", pa.list_(pa.float32()), nullable=False),
    ]
)
