"""Ideas that several stages share: plain Python, no IO, no orchestrator, no engine."""
