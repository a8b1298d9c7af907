"""How each artifact is made: one stage per file, a pure function first, the stage that calls it after."""
