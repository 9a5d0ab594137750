"""Reports on the runs in folders: self-contained HTML pages, tables and figures.

`write.write_report` writes one.
"""
