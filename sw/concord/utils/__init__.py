"""Files, folders, HTML pages and processes: what the other packages share and no network depends on."""
