"""Where the files beside the code lie: configs, the paper's numbers, the tested set of packages.

In a clone they are at the top, where readers look for them; a wheel carries copies inside this package (see setup.py),
which has the distribution's name, so that no folder called `configs` lands in anybody's site-packages. It imports
nothing: `analysis` runs without torch.
"""

from pathlib import Path

_INSTALLED = Path(__file__).resolve().parent / "files"
CLONE = None if _INSTALLED.is_dir() else _INSTALLED.parents[1]
"""Top of the clone that this runs from; None for an installed wheel."""


def beside_code(path: str) -> Path:
    """A file or folder by its path in the repository, such as `configs/models`."""
    return (CLONE or _INSTALLED) / path
