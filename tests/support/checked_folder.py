"""Runs that tests leave in scratch folders are looked at before these are removed."""
import pathlib
import subprocess
import tempfile


def check_runs(folder):
    """Raises where a record of a run in the folder is not as docs/schemas has it; prints how many runs there are."""
    subprocess.run([pathlib.Path(__file__).resolve().with_name("check_runs.sh"), folder], check=True)


class CheckedFolder(tempfile.TemporaryDirectory):
    def cleanup(self):
        try:
            check_runs(self.name)
        finally:
            super().cleanup()
