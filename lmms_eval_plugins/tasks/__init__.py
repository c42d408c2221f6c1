"""Tasks for lmms-eval; found by `--tasks` without `--include_path`."""
