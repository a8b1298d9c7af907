"""How each artifact is made: one stage per file, its pure half above, its shell below."""
