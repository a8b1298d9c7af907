"""Studies: profiles, questions over them, a person's settings, and the study that these resolve to."""
