"""Sphinx's settings for the site that ``nox -s site`` builds from the pages of this repository.

The source folder is the repository's root. So a page's links to README.md, to examples or to a schema
are the same on the site, in an editor and on a code host.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

project = "samebits"
author = "the authors of samebits"
copyright = f"{author}, Apache-2.0"
html_title = project

extensions = ["myst_parser", "sphinx_copybutton", "pages"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/**/*.md",
    "examples/**/README.md",
    "tests/custom/README.md",
    "tests/gold/README.md",
]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 6
"""Headings down to this level have the anchors that code hosts give them."""

smartquotes = False
"""Options begin with two hyphens."""

nitpicky = True
suppress_warnings = ["myst.header"]
"""Some pages begin below their title with a heading of the third level."""

html_theme = "furo"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]
html_use_index = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
