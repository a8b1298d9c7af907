"""The grader with a cache, a process for graders of other packages, and the grader's adversarial suite."""
