"""Studies: profiles, questions over them, user settings, and the resolved study."""
