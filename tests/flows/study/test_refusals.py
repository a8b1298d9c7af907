"""Faults of a study file: each is one sentence with the file, its line and the field."""

import pytest

from flows.study.request import profile_of
from storage.errors import UserError

TINKER = 'hardware.engine = "tinker"\n'
LESSON = """[lessons.easy]
arms = ["panel"]
pool = { synthetic = 8, heldout_per_source = 2 }
rollouts = { max_tokens = 8 }
[lessons.easy.training]
steps = 1
groups_per_step = 1
group_size = 2
learning_rate = 1e-3
lora_rank = 3
lora_alpha = 8
"""
#: Text after `base = "demo"`, and a part of the sentence that refuses it.
STUDY = [
    ("steps = 3", "line 2: steps: no field 'steps'; did you mean training.steps"),
    ("lr = 1e-3", "line 2: lr: no field 'lr'; did you mean training.learning_rate?"),
    ("arms = ['pannel']", "line 2: arms: unknown arm 'pannel'; did you mean 'panel'?"),
    ("train_on = 'foo'", "line 2: train_on: train_on is 'foo'; it must be 'variance', 'joint' or 'all'"),
    ("[pool]\nheldout_per_source = 0", "line 3: pool.heldout_per_source: nothing would be held out"),
    ("scaffolds = 3", "line 2: scaffolds: 3 is not a table"),
    ("encoder.name = 'none'", "line 2: encoder.name: 'none' is no encoder: "),
    ("name = 'a b'", "line 2: name: 'a b' is not a valid name"),
    ("[questions.q]\ntraining.stps = 1", "line 3: questions.q.training.stps: no field 'stps'; did you mean 'steps'"),
    (f"x = {'[' * 2000}{']' * 2000}", "maximum recursion depth"),
    (LESSON, "the adapter of lesson easy, which has lora_rank=3 and not"),
    ("[objectives.mine]\nsteps = 5", "all objectives have the same steps; set training.steps"),
    ("[objectives.mine]\nclip_low = 0.1", "objectives.mine.clip_low: "),
    ('arms = ["panel", "thinking"]\nobjectives = ["VPO"]', "which scaffold thinking does not have"),
    ('search.methods = ["majorty"]', "unknown method 'majorty'; did you mean 'majority'?"),
    ('search.methods = ["particles:temperature=0"]', "temperature is 0; it must be greater than 0"),
    ('search.methods = ["rewarded"]', "method rewarded is scored by a reward model"),
    ('search = { methods = ["majority"], tokens = 128 }', "tokens=128 is below one rollout"),
    ("rollouts.top_p = 0.9", "rollouts.top_p is 0.9: training needs 1"),
    ("rollouts.temperature = 0", "rollouts.temperature is 0: training needs at least 0.01"),
    ('rollouts.kv_cache = "fp8"', "rollouts.kv_cache is fp8: training needs full"),
    (
        f'{TINKER}training.loss = "gspo"\ntraining.epochs = 2',
        "line 3: training.loss: engine tinker: the service has no",
    ),
    (f"{TINKER}training.kl_weight = 0.1", "line 3: training.kl_weight: engine tinker: the service has no KL term"),
    (f"{TINKER}rollouts.temperature = 0.7", "line 3: rollouts.temperature: engine tinker: the service has no"),
]
#: The same of text in `[training]`.
TRAINING = [
    ("steps = 'x'", "line 3: training.steps: steps is 'x'; it must be a valid integer"),
    ("target_modules = ['q_proj', 'q_proj']", "q_proj is listed more than once"),
    ("seed = 5", "line 3: training.seed: "),
    ("group_size = 1", "group_size is 1"),
    ('advantage = "zscore"', "unknown advantage 'zscore'"),
    ('advantage = "pkpo"\ngroup_size = 2', "pkpo needs 4 attempts (advantage_k) of 2"),
    ('advantage = "pass_at_k"\nadvantage_k = 2\ngroup_size = 2', "pass_at_k compares choices of 2 attempts"),
    ('advantage = "pkpo"\nadvantage_k = 1', "pkpo needs at least 2 attempts"),
    ('advantage = "entropic"\ngroup_size = 2', "entropic needs a group_size of 3, not 2"),
    ("overlong_cache = 64\nmax_tokens = 64", "set max_tokens to the longest completion, above it"),
    ("overlong_cache = 20\nmax_tokens = 148", "begins after 128 tokens, but rollouts end at 128"),
    ("token_budget = 9\nstaleness = 1", "staleness, which samples one step more"),
    ('token_budget = 9\nlr_schedule = "linear"', "lr_schedule=linear falls by steps"),
    ("target_modules = []", "target_modules is"),
    ("lora_rank = 8\nexpert_rank = 8", "expert_rank is 8; it must be below lora_rank, which is 8"),
    ('lora_rank = 8\nexpert_rank = 4\ntarget_modules = ["q_proj"]', "beside other layers; leave it out"),
    ("minibatches = 99", "minibatches is 99, above groups_per_step"),
    ('loss = "gpro"', "unknown loss 'gpro'"),
    ('loss = "grpo"', "needs advantage standardised"),
    ('loss = "rloo"', "needs advantage leave_one_out"),
    ('loss = "dr_grpo"', "divides by max_tokens"),
    ('loss = "kl_cov"\nadvantage = "standardised"', "which is zero with one update per step"),
    ('rewards = [{name = "corect"}]', "unknown reward 'corect'; did you mean 'correct'?"),
    ('rewards = [{name = "correct"}, {name = "correct"}]', "names one part twice"),
    ('rewards = [{name = "correct"}, {name = "overlong"}]', "belong together"),
    ('rewards = [{name = "correct"}]\nmax_tokens = 100\noverlong_cache = 20', "belong together"),
    ('rewards = [{name = "judge"}]', "reward judge: set its model"),
    ('rewards = [{name = "correct", model = "m"}]', "only the reward 'judge' has a model and a rubric"),
    ('rewards = [{name = "format"}]\nadvantage = "max_rl"', "give the reward 'correct' a weight of 1"),
]


@pytest.mark.parametrize(("text", "said"), [*STUDY, *((f"[training]\n{text}", said) for text, said in TRAINING)])
def test_a_fault_is_one_sentence_with_its_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        profile_of("mine.toml", f'base = "demo"\n{text}')
    assert said in str(error.value) and "\n" not in str(error.value) and str(error.value).startswith("mine.toml")
