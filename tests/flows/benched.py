"""The command line with one more profile: the demo, asked two benchmarks of a file that stands in $VARBAND_BENCHED."""

from __future__ import annotations

import os
from dataclasses import replace

from flows.study.profile import Benchmark
from flows.study.profiles import DEMO, PROFILES

FILE = (os.environ.get("VARBAND_BENCHED", "benchmark.jsonl"),)
BENCHED = replace(
    DEMO,
    name="benched",
    benchmarks=(
        Benchmark(name="stratified", sources=FILE, levels=("1", "2", "3", "4", "5"), per_level=2, group_size=2),
        Benchmark(name="level_5", sources=FILE, levels=("5",), group_size=4),
    ),
)

if __name__ == "__main__":
    PROFILES[BENCHED.name] = BENCHED
    from cli.main import main

    main()
