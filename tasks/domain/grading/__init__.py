"""The one grader: which answer a completion gives, and whether it equals the gold."""
