"""How figures and tables look: styles, panels, and how numbers are written."""
