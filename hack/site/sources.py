"""Links from the site's pages to files that are no pages lead to the repository."""

import posixpath
import re
from pathlib import Path

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
ROOT = Path(__file__).resolve().parents[2]


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname(page.file.src_uri)

    def target(match):
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if path in files.src_uris:
            return match[0]
        if posixpath.join(path, "README.md") in files.src_uris:
            return match[1] + posixpath.join(match[2], "README.md") + match[3]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        if not (ROOT / path).exists():
            return match[0]  # left for mkdocs to complain of
        repository = config.repo_url.rstrip("/")
        return f"{match[1]}{repository}/{kind}/main/{path}{match[3]}"

    return LINK.sub(target, markdown)
