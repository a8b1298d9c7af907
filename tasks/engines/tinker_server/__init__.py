"""A server of the Tinker API that uses this project's own sampler and learner."""
