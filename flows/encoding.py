"""The study's encoder: what it is shown, and from which similarity on it calls traces the same."""

from __future__ import annotations

from flows.study.resolve import Study
from storage.artifacts.kinds import Calibrations
from tasks.embedding import EncoderSpec
from tasks.partitions import calibrate_partitions


def encoder_of(study: Study) -> EncoderSpec:
    e = study.profile.encoder
    return EncoderSpec(e.name, study.encoder_sha256, e.max_tokens, e.windows)


def calibrated(study: Study) -> Calibrations:
    e, labelled = study.profile.encoder, study.labelled_sha256
    return calibrate_partitions(
        encoder=e.name, weights_sha256=study.encoder_sha256, max_tokens=e.max_tokens, labelled=labelled
    )
