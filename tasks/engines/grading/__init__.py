"""The grader at training speed: worker processes that can be killed."""
