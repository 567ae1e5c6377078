"""How figures and tables look: colours, panels, and the format of numbers."""
