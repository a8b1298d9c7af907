"""The grader with a cache, a process for grader plug-ins, and the grader's adversarial suite."""
