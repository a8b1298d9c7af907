"""Test-time search methods, which ask for rollouts and never see a gold."""
