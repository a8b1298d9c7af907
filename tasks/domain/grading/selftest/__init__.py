"""The grader's adversarial suite: facts with the verdict that each must get."""
