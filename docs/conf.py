"""How the documentation is built: `sphinx-build -W docs docs/_build`."""

from __future__ import annotations

import dtjax

project = "dtjax"
author = "The dtjax developers"
project_copyright = "The dtjax developers, Apache-2.0"
release = version = dtjax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "jupyter_execute"]
default_role = "literal"  # docstrings write `name` for code
html_theme = "furo"
html_title = "dtjax"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures of arrays say little: docstrings give shapes and units
autosummary_generate = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False  # what is before a colon in Returns is no type

# Each page is run when it is built, in a folder of its own; an error stops the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_show_tb = True


def escape_bars(_app, _what, _name, _object, _options, lines: list[str]) -> None:
    """Keep |x| in formulas from being read as a substitution, but not in code and examples."""
    example = False
    for i, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example:
            parts = line.split("`")
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[i] = "`".join(parts)


def setup(app) -> None:
    """Connect what this file adds to Sphinx."""
    app.connect("autodoc-process-docstring", escape_bars)
