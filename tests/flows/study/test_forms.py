"""Forms: what a run was asked for reaches whoever works on it, however late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from flows.study.forms import PinnedForm, SearchForm, StudyForm
from flows.study.profiles import DEMO
from flows.study.settings import overridden
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grading.grading import ActiveGrader, Overrides
from tests.flows.running.test_plan import study_of

ASKED = Overrides.of((("six", "6", "correct", "spelt out"), ("2\\sqrt{3}", "x", "wrong", "“no”")))
SINCE = Overrides.of((("six", "6", "wrong", "no digit"),))


def test_an_arm_elsewhere_is_judged_as_its_run_was_asked_for(tmp_path: Path) -> None:
    """The worker resolves the study when its turn comes, and finds what was overridden since."""
    study = study_of(DEMO, tmp_path)
    for asked in (ASKED, Overrides()):
        run = replace(study, grader=ActiveGrader(overrides=asked))
        sent = PinnedForm.of(StudyForm(limit=3), run).model_dump_json()
        received = PinnedForm.model_validate_json(sent)
        assert received.pinned(replace(study, grader=ActiveGrader(overrides=SINCE))).grader == run.grader
        assert received.request() == StudyForm(limit=3).request()


def test_a_form_asks_for_a_search_in_a_profiles_words() -> None:
    asked = SearchForm(methods=["majority:width=8", "beam:end=."], tokens=1600).of(StudyForm(seeds=[3]))
    assert asked.request().settings[1:] == ("search.methods=majority:width=8,beam:end=.", "search.tokens=1600")
    assert overridden(DEMO, asked.request().settings).search.methods == ("majority:width=8", "beam:end=.")
    for wrong in ("majorty", "majority:wide=3", "majority,first"):
        with pytest.raises(ValidationError):
            SearchForm(methods=[wrong])


def test_a_question_without_a_file_is_the_profiles(tmp_path: Path) -> None:
    """It was left out, and the profile itself was run."""
    assert StudyForm(profile="demo", question="objectives").request() == StudyForm(profile="demo/objectives").request()
    with pytest.raises(UserError, match="unknown profile 'demo/cooler'"):
        StudyForm(question="cooler").request().study(Store(tmp_path))


@pytest.mark.parametrize(
    ("text", "named", "question", "called"),
    [
        ('base = "demo"\n', "mine", "", "mine"),
        ('base = "demo"\n', "mine", "seeds", "mine/seeds"),
        ('base = "demo"\nname = "said"\n', "", "seeds", "said/seeds"),
        (f'base = "demo"\n[encoder]\nname = "owner/encoder@{"0" * 40}"\n', "mine", "", "mine"),
    ],
)
def test_the_text_of_a_file_is_called_as_it_says_or_as_the_form_says(
    text: str, named: str, question: str, called: str, tmp_path: Path
) -> None:
    """An encoder's name was taken for the study's, which no study can have."""
    form = StudyForm(file=text, name=named, question=question)
    assert form.request().study(Store(tmp_path), planning=True).profile.called == called


def test_a_form_refuses_a_name_that_is_none(tmp_path: Path) -> None:
    for name in ("a/b", "x.toml/y", "demo"):
        with pytest.raises((UserError, ValidationError), match="name"):
            StudyForm(file='base = "demo"\n', name=name).request().study(Store(tmp_path), planning=True)
