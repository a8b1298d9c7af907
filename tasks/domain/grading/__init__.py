"""The grader: extracts the answer of a completion and decides whether it equals the gold (the correct answer)."""
