"""Arms from start to end: screening, training, evaluation. Each step of an arm passes its artifacts to the next step.

Problems are prepared once for all arms. An arm that is evaluated with another arm's adapter gets the other's training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flows.artifacts import ArmArtifacts, Measured, ObjectiveResult, Screened, Start, Trained
from flows.gate import gate_of
from flows.problems import Prepared, encoder_of
from flows.study.profile import Objective, SamplingPlan
from flows.study.resolve import Study
from storage.artifacts.schemas import Bands, Benchmark, Pool, Rollouts, Searches, Splits, Training
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import second_scaffold
from tasks.domain.grpo.steps import evaluated_steps
from tasks.domain.policies import Policy, Sampling, check_bases
from tasks.domain.search.method import CERTAINTY
from tasks.domain.search.registry import method_named, with_base
from tasks.embedding import embed_traces
from tasks.measures.bands import classify_bands, keep_joint
from tasks.measures.diversity import measure_diversity
from tasks.pool import IN_BENCHMARK
from tasks.regrading import regrade
from tasks.sampling import sample_rollouts
from tasks.searches import search_problems
from tasks.stage import only_noted, provided, store
from tasks.training import STEP, import_adapter, train_adapter


def make_arms(study: Study, at: Prepared) -> tuple[ArmArtifacts, ...]:
    """Make a study's arms, each under its own name: screen, find bands, train, evaluate, measure diversity."""
    return _Arms(study, at).made()


@dataclass(slots=True)
class _Arms:
    """The arms of a study while they are made. A head is a trained arm, with whose adapter other arms may be evaluated.
    taught: policies after the lessons, by head. live: bands that a head trains on. trainings: by head and seed."""

    study: Study
    at: Prepared
    taught: dict[str, Start | None] = field(default_factory=dict)
    screened: dict[str, Screened] = field(default_factory=dict)
    live: dict[str, Bands] = field(default_factory=dict)
    trainings: dict[tuple[str, int], Training] = field(default_factory=dict)

    def made(self) -> tuple[ArmArtifacts, ...]:
        p, arms = self.study.profile, self.study.profile.arms
        training = bool(p.training.steps and p.seeds)
        heads = p.heads(arms) if training else ()
        needed = [*dict.fromkeys([*heads, *arms])]
        self.taught = {head: self._taught(head) for head in dict.fromkeys(p.arm(a).head for a in needed)}
        check_bases(self.study.models, [p.arm(a) for a in needed if training or self.taught[p.arm(a).head]])
        self.screened = {arm: self._screened(arm) for arm in needed}
        joint = heads if p.train_on == "joint" else ()
        self.live = {head: self._live(head, joint) for head in heads if p.train_on != "all"}
        gate = gate_of(self.study, self.at.studied.splits, [self.screened[head] for head in heads])

        def make(arm: str) -> ArmArtifacts:
            head = p.arm(arm).head
            with only_noted() as steps:
                for seed in p.seeds if head in heads else ():
                    for objective in (None, *(p.objectives if head == arm else ())):
                        self._trained(self._start(head, self.taught[head]), seed, objective)
            trained = all(store().fresh(step.ref) for step in steps)
            with provided(None if trained else gate):
                return self._artifacts(arm, trains=training and head in p.heads([arm]))

        return tuple(map(make, arms))

    def _artifacts(self, arm: str, *, trains: bool) -> ArmArtifacts:
        p, head, start = self.study.profile, self.study.profile.arm(arm).head, self.screened[arm].start
        heldout = self._heldout(
            start, (*self._final_plans, *((*self._comparison_plans, p.evaluation) if trains else ()))
        )
        before, trained = self._measured(start, heldout), []
        for seed in p.seeds if trains else ():
            if (head, seed) not in self.trainings:
                self.trainings[head, seed] = self._trained(self._start(head, self.taught[head]), seed)
            trained.append(self._evaluated_after(start, heldout[p.evaluation], self.trainings[head, seed], seed))
        results = [
            self._by_objective(start, seed, objective)
            for objective in (p.objectives if trains and head == arm else ())
            for seed in p.seeds
        ]
        return ArmArtifacts(self.screened[arm], before, tuple(trained), tuple(results))

    def _start(self, arm: str, taught: Start | None) -> Start:
        """Return the policy of an arm's screening, from which its main training starts: after the lessons, if any."""
        base = Policy(arm=arm, model=self.study.models[arm], scaffold=self.study.profile.arm(arm).scaffold)
        if taught is None:
            return Start(base)
        adapter, step = taught.policy.adapter, taught.policy.adapter_step
        return Start(replace(base, adapter=adapter, adapter_step=step), taught.training)

    def _taught(self, head: str) -> Start | None:
        """Return the policy after the lessons of an arm; None without lessons and imported adapter. A lesson starts
        from the adapter of the lesson before; the first starts from the arm's imported adapter, if any."""
        p, taught = self.study.profile, None
        if (adapter := self.study.adapters.get(head)) is not None:
            imported = import_adapter.titled(f"adapter of {head}")(adapter=adapter, base=self.study.models[head])
            taught = self._start(head, None).after(imported, STEP)
        for lesson in p.lessons:
            if head in lesson.arms and p.arm(head).trains:
                start, where = self._start(head, taught), self.at.lessons[lesson.name]
                title, how = f"lesson {lesson.name} for {head}", (lesson.training, lesson.rollouts)
                training = self._adapter(title, start, where.pool, where.splits, None, *how, 0)
                taught = start.after(training, lesson.training.steps)
        return taught

    def _screened(self, arm: str) -> Screened:
        p, at = self.study.profile, self.at.studied
        start = self._start(arm, self.taught[p.arm(arm).head])
        rollouts = self._sampled(f"screen {arm}", start, at.pool, at.splits, p.screening)
        band = classify_bands.titled(f"band {arm}")
        trained_on = band(rollouts=rollouts)
        graded = self._graded(rollouts, at.pool)
        return Screened(arm, start, graded, trained_on if graded == rollouts else band(rollouts=graded), trained_on)

    def _live(self, head: str, joint: Sequence[str]) -> Bands:
        """Return the bands that a head trains on: its own, or with `joint` only what is in the bands of all of them."""
        own = self.screened[head].trained_on
        others = tuple(self.screened[arm].trained_on for arm in joint if arm != head)
        return keep_joint.titled(f"joint band of {head}")(own=own, others=others) if joint else own

    def _by_objective(self, start: Start, seed: int, objective: Objective) -> ObjectiveResult:
        """Train the arm with another objective, from the same start, on the same problems and seeds."""
        (plan,) = self._comparison_plans
        training, by = self._trained(start, seed, objective), f" by {objective.name}"
        end = start.after(training, objective.training.steps, seed)
        rollouts = self._heldout(end, (plan,), by)[plan]
        return ObjectiveResult(f"{end.name}{by}", objective.name, training, rollouts)

    def _trained(self, start: Start, seed: int, objective: Objective | None = None) -> Training:
        """Train an arm, and return its adapter. objective: the study's own if None."""
        p, arm, at = self.study.profile, start.policy.arm, self.at.studied
        by = f" by {objective.name}" if objective else ""
        learner = replace(objective.training if objective else p.training, seed=seed)
        title, each = f"train {arm} seed {seed}{by}", p.evaluation.group_size
        return self._adapter(title, start, at.pool, at.splits, self.live.get(arm), learner, p.rollouts, each)

    def _adapter(
        self,
        title: str,
        start: Start,
        pool: Pool,
        splits: Splits,
        bands: Bands | None,
        learner: LearnerConfig,
        rollouts: Sampling,
        evaluation_group_size: int,
    ) -> Training:
        """Call the training stage with the inputs that the objective needs. bands: all problems if None."""
        needs, p = ADVANTAGES[learner.advantage].needs, self.study.profile
        return train_adapter.titled(title)(
            pool=pool,
            splits=splits,
            bands=bands,
            start=start.policy,
            learner=learner,
            rollouts=rollouts,
            evaluation=p.evaluation.sampling,
            evaluation_group_size=evaluation_group_size,
            init=start.training,
            second=second_scaffold(learner, start.policy.scaffold),
            calibration=self.at.calibration if "vectors" in needs else None,
            context=p.hardware.max_model_len if "refinements" in needs else None,
        )

    def _evaluated_after(self, start: Start, first: Rollouts, training: Training, seed: int) -> Trained:
        """Evaluate a training at the steps of the curve and at its last step. first: all seeds' rollouts at step 0."""
        p = self.study.profile
        *earlier, end = (
            start.after(training, step, seed) for step in evaluated_steps(p.training.steps, p.training.eval_every)[1:]
        )
        curve = tuple(self._heldout(policy, (p.evaluation,))[p.evaluation] for policy in earlier)
        heldout = self._heldout(end, (p.evaluation, *self._final_plans, *self._comparison_plans))
        return Trained(seed, training, (first, *curve, heldout[p.evaluation]), self._measured(end, heldout))

    @property
    def _final_plans(self) -> tuple[SamplingPlan, ...]:
        """Return the plans for sampling after training: the study's, and one with more rollouts for the asymptote."""
        p = self.study.profile
        return (p.final, replace(p.final, group_size=p.asymptote)) if p.asymptote else (p.final,)

    @property
    def _comparison_plans(self) -> tuple[SamplingPlan, ...]:
        """Return the plan whose rollouts compare objectives; empty if the study compares none."""
        p = self.study.profile
        return (replace(p.final, group_size=p.objective_group_size),) if p.objectives else ()

    def _heldout(self, start: Start, plans: Sequence[SamplingPlan], by: str = "") -> Mapping[SamplingPlan, Rollouts]:
        """Return the rollouts of one policy on the held-out problems, by plan. Equal plans share one artifact."""
        at = self.at.studied
        known = [
            ("curve", self.study.profile.evaluation),
            *zip(("final", "asymptote"), self._final_plans, strict=False),
        ]
        known += [("objectives", plan) for plan in self._comparison_plans]
        names = {plan: " and ".join(name for name, one in known if one == plan) for plan in plans}
        return {
            plan: self._graded(self._sampled(title, start, at.pool, at.splits, plan, split="heldout"), at.pool)
            for plan, name in names.items()
            for title in [f"evaluate{by} {start.name} ({name}, {plan.group_size} each)"]
        }

    def _sampled(
        self,
        title: str,
        start: Start,
        pool: Pool,
        splits: Splits | Benchmark,
        plan: SamplingPlan,
        split: str | None = None,
    ) -> Rollouts:
        """Return a policy's rollouts on one split (None: the whole pool), with the verdicts of their first grading."""
        return sample_rollouts.titled(title)(
            pool=pool,
            splits=splits,
            policy=start.policy,
            sampling=plan.sampling,
            group_size=plan.group_size,
            split=split,
            training=start.training,
            lora_rank=self.study.profile.training.lora_rank,
        )

    def _graded(self, rollouts: Rollouts, pool: Pool) -> Rollouts:
        return regrade(rollouts=rollouts, pool=pool, grader=self.study.grader)

    def _measured(self, start: Start, heldout: Mapping[SamplingPlan, Rollouts]) -> Measured:
        p, where = self.study.profile, start.name
        final, *deeper = self._final_plans
        embeddings = diversity = None
        if p.embeds:
            embeddings = embed_traces.titled(f"embed {where}")(rollouts=heldout[final], encoder=encoder_of(self.study))
            diversity = measure_diversity.titled(f"diversity {where}")(embeddings=embeddings)
        deep = heldout[deeper[0]] if deeper else None
        compared = next((heldout[plan] for plan in self._comparison_plans if plan in heldout), None)
        searches = self._searched(start)
        benchmarks = list[Rollouts]()
        for b, (pool, choice) in zip(p.benchmarks, self.at.benchmarks, strict=True):
            plan = replace(final, group_size=b.group_size)
            rollouts = self._sampled(f"{b.name}: {where}", start, pool, choice, plan, split=IN_BENCHMARK)
            benchmarks.append(self._graded(rollouts, pool))
        return Measured(where, heldout[final], embeddings, diversity, deep, tuple(benchmarks), compared, searches)

    def _searched(self, start: Start) -> tuple[Searches, ...]:
        """Return one artifact per search method, and one for the method whose rollouts the others share."""
        p, policy, at = self.study.profile, start.policy, self.at.studied
        methods = with_base({name: method_named(name) for name in p.search.methods})
        return tuple(
            search_problems.titled(f"{name}: {start.name}")(
                pool=at.pool,
                splits=at.splits,
                policy=policy,
                sampling=p.final.sampling,
                name=name,
                method=method,
                tokens=p.search.tokens,
                context=p.hardware.max_model_len,
                grader_version=self.study.grader.version,
                split="heldout",
                training=start.training,
                lora_rank=p.training.lora_rank,
                reward=self.study.reward if method.reward not in ("", CERTAINTY) else None,
            )
            for name, method in methods.items()
        )
