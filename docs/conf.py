"""Settings of the documentation site; ``make docs`` builds it into ``build/site``.

Nothing is fetched while the site is built or read: fonts are those of the system, and the search runs in the browser.
"""

import os
import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer

import concord

ROOT = Path(__file__).resolve().parents[1]
# The cells of the notebooks find the commands of the environment that builds the site.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

project = "Concord"
author = "the Concord authors"
copyright = "the Concord authors, Apache-2.0"
release = concord.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["examples"]

# Pages: anchors of headings as in the source browser, so that one spelling of a link works in both.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "deflist"]
highlight_language = "none"

# Notebooks are run when the site is built, and again only when their cells change. A cell that fails ends the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_timeout = 120  # seconds of one cell, on a busy machine
nb_execution_raise_on_error = True
nb_merge_streams = True

# Reference of the Python interface: the order of the source, names of types without their modules.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "npt.ArrayLike": "ArrayLike", "FloatArray": "FloatArray"}
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_custom_sections = [("Members", "params_style")]

html_theme = "furo"
html_title = "Concord"
html_static_path = ["static"]
html_css_files = ["concord.css"]
html_show_sourcelink = False
html_copy_source = False


def plain_aliases(app, what, name, obj, options, signature, returns):
    """Show an alias of ``autodoc_type_aliases`` by its name alone."""
    return tuple(text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in (signature, returns))


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", plain_aliases)
    app.add_lexer("mermaid", TextLexer)  # GitHub draws state diagrams; here they are read as they are written
