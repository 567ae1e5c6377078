"""Animals (Fig. 2): the experiment and its figures."""
