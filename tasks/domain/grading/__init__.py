"""The grader: extracts a completion's answer and decides whether it equals the gold."""
