"""Searches of many problems together: each one's tree, what is asked of the engine, and what came."""
