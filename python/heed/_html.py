"""HTML around the pictures that the command draws. A study has one, with charts and findings; its tables stand below."""

import base64
from html import escape

STYLE = """
  :root { color-scheme: light dark; }
  body { max-width: 880px; margin: 0 auto; padding: 20px; background: #f6f5f2; color: #1b1c1f;
    font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
  svg { display: block; width: 100%; height: auto; margin-bottom: 12px; }
  .table { overflow-x: auto; }
  table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; white-space: nowrap; }
  td, th { padding: 2px 10px; border-bottom: 1px solid #d9d8d3; text-align: right; }
  td:first-child, th:first-child { text-align: left; }
  @media (prefers-color-scheme: dark) {
    body { background: #101216; color: #eceef1; }
    td, th { border-color: #343942; }
  }
"""


def picture(svg: str, words: str) -> str:
    """An image that brings no style of its own into what is around it."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(words)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'


def page(title: str, svg: str, tables: dict[str, list[dict]]) -> str:
    """A whole document that asks for nothing outside of it."""
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'; img-src data:">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{svg}\n{of_tables(tables)}\n</body>\n</html>\n")


def of_tables(tables: dict[str, list[dict]]) -> str:
    return "\n".join(f'<details><summary>{escape(name)}: {len(rows)} rows</summary>\n<div class="table"><table>\n'
                     f"{line('th', rows[0])}\n" + "\n".join(line("td", map(shown, row.values())) for row in rows)
                     + "\n</table></div>\n</details>" for name, rows in tables.items() if rows)


def line(kind: str, cells) -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"


def shown(value) -> str:
    """Six digits; all of them are in .tables, .csv and .json."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
