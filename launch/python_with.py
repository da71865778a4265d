"""Python modules of a script, from the first Python that has them: PATH's, then the distribution's.

    from python_with import modules
    h5py, numpy, Image = modules("h5py", "numpy", "PIL.Image")

Where the Python that runs the script lacks one of them, the script starts again under /usr/bin/python3; where that lacks one
too, one line says what to install. For --help they need not be there: then all are None.
"""
import importlib
import os
import sys

SYSTEM_PYTHON = "/usr/bin/python3"  # the one that the distribution's python3-... packages are for
PIP_NAMES = {"PIL": "pillow"}
NOT_IN_DEBIAN = {"wandb"}


PLOTS = ("matplotlib", "matplotlib.backends.backend_svg", "matplotlib.figure", "matplotlib.ticker")  # those of html_page.py
PLOTS_NEED = ("The page needs matplotlib 3.6 or a later one, of the Python in PATH or of /usr/bin/python3 (Debian: python3-matplotlib; pip "
              "install matplotlib).")  # the end of the help of those that write one


def lacking(*names):
    """Why the modules are not there, and what to install, in one line; None where they are."""
    try:
        for name in names:
            importlib.import_module(name)
        return None
    except Exception as error:  # also one that is there and broken: built for another NumPy, without its library
        missing = error
    if os.access(SYSTEM_PYTHON, os.X_OK) and sys.executable != SYSTEM_PYTHON:
        sys.stdout.flush()
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    packages = list(dict.fromkeys(name.split(".")[0] for name in names))
    debian = " ".join(f"python3-{package.lower()}" for package in packages)
    ways = [] if NOT_IN_DEBIAN & set(packages) else [f"apt-get install {debian}"]
    ways.append("pip install " + " ".join(PIP_NAMES.get(package, package) for package in packages))
    return f"{missing}; install what it needs: {', or '.join(ways)}"


def modules(*names):
    why = lacking(*names)
    if why is None:
        return [importlib.import_module(name) for name in names]
    if {"-h", "--help"} & set(sys.argv):
        return [None] * len(names)
    print(f"{os.path.basename(sys.argv[0])}: {why}", file=sys.stderr)
    sys.exit(66)
