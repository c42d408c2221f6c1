"""Everything is in pyproject.toml but this: a wheel carries the files beside the code, see `tgv_kv_harness`."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FILES = ("configs", "results/paper", "requirements.txt")


class BuildWithFiles(build_py):
    """Adds them where `tgv_kv_harness.beside_code` looks; an editable installation reads those of the clone."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "tgv_kv_harness" / "files"
        shutil.rmtree(target, ignore_errors=True)
        for name in FILES:
            source = Path(name)
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target / name)


setup(cmdclass={"build_py": BuildWithFiles})
