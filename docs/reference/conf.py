"""Sphinx, told to make one page for each module from its docstrings: ./dev docs."""

import heed

project = "heed"
version = release = heed.__version__
extensions = ["sphinx.ext.autodoc"]
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
add_module_names = False
highlight_language = "none"
html_theme = "alabaster"
html_theme_options = {"body_max_width": "60em", "page_width": "76em", "font_family": "system-ui, sans-serif", "show_powered_by": False}
html_show_copyright = html_show_sphinx = html_copy_source = False
