"""The grader with caching, and worker processes for graders of other packages."""
