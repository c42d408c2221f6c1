"""Tables and plots from result files; needs pandas and matplotlib only, no torch."""
