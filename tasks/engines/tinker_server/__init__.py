"""A server of the Tinker API from this project's own sampler and learner."""
