"""How the demo's base model is made and described."""
