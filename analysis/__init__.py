"""Tables and plots from result files; needs pandas and matplotlib only, no torch."""

import pandas as pd

pd.set_option("mode.string_storage", "python")  # Arrow's strings refuse file names that are not UTF-8
