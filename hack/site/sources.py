"""What GitHub does with a page and mkdocs does not: links to files that are no pages lead to the repository, a list may
begin right after a paragraph, and an anchor above a heading is the address of that heading. Besides, who searches finds
the pages for users before those for contributors."""

import posixpath
import re
from pathlib import Path

FENCE = re.compile(r"^\s*```")
ITEM = re.compile(r"^\s*([-*]|\d+\.) ")
# Of what looks like an item, what may begin a list right after a paragraph: not a line that begins with "2026. ".
FIRST = re.compile(r"^\s*([-*]|1\.) ")
# What GitHub's Markdown has no other way to say: an id for the heading below.
ANCHOR = re.compile(r'^<a id="([^"]+)"></a>\n\n(#+ .*)$', re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
ROOT = Path(__file__).resolve().parents[2]


# Where the pages for users are.
FOR_USERS = ("docs/quickstart.md", "docs/concepts.md", "docs/how-to/", "docs/reference/", "docs/runbooks/")


def on_page_markdown(markdown, page, config, files):
    page.meta["search"] = {"boost": 2 if page.file.src_uri.startswith(FOR_USERS) else 0.5}
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

    # In the contents beside a page, a field stands below the ones that it is in: its own name is enough there.
    markdown = ANCHOR.sub(lambda m: f"{m[2]} {{: #{m[1]} data-toc-label='{m[1].split('.')[-1]}' }}", markdown)
    return LINK.sub(target, with_lists(markdown))


def with_lists(markdown):
    """The page with an empty line between each paragraph and a list that begins right after it."""
    lines, fenced, inside = [], False, False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        item = not fenced and ITEM.match(line)
        # A line that continues an item is indented.
        if item and not inside and lines and lines[-1].strip():
            item = FIRST.match(line)
            lines += [""] if item else []
        inside = bool(item) or (inside and (not line.strip() or line[0] == " "))
        lines.append(line)
    return "\n".join(lines)
