"""Pages of the site for what lies outside docs/: pages link to the repository's files as they lie, and a site has none of them.

Each file that a page links to becomes a page under `outside/`: markdown as it is, other text as a block of code, a
folder as a list. Links are rewritten to these pages. A link to something that does not exist is a warning, which ends a
strict build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
LARGEST = 200_000
LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".json": "json",
    ".ini": "ini",
    ".c": "c",
    ".h": "c",
}
SKIPPED = ("__pycache__", ".pytest_cache")
ALWAYS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
log = logging.getLogger("mkdocs.hooks.outside")


def on_config(config: Any) -> Any:
    """Let an entry `folder/*` of the navigation stand for the pages of a folder."""
    for section in config["nav"]:
        for pages in section.values():
            for place, entry in enumerate(pages):
                name, pattern = next(iter(entry.items())) if isinstance(entry, dict) else ("", "")
                if pattern.endswith("/*"):
                    folder = Path(config["docs_dir"]) / pattern[:-2]
                    pages[place] = {name: [f"{pattern[:-1]}{page.name}" for page in sorted(folder.glob("*.md"))]}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file outside docs/ that some page links to, and for those that these link to."""
    root = Path(config["docs_dir"]).parent
    texts = {f"docs/{file.src_uri}": file.content_string for file in files if file.src_uri.endswith(".md")}
    waiting = [(path, target) for path, text in texts.items() for target in _targets(text, path)]
    waiting += [("mkdocs.yml", name) for name in ALWAYS]
    known: set[str] = set()
    while waiting:
        source, target = waiting.pop()
        if target in known or _inside(target):
            continue
        if not (root / target).exists():
            log.warning("%s links to %s, which does not exist.", source, target)
            continue
        known.add(target)
        text = _page(root / target, target)
        listed = InclusionLevel.INCLUDED if target in ALWAYS else InclusionLevel.NOT_IN_NAV
        content = _rewritten(text, target, root)
        files.append(File.generated(config, _uri(root, target), content=content, inclusion=listed))
        waiting += [(target, other) for other in _targets(text, target)]
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Point links that leave docs/ to the pages that stand for what they name."""
    if page.file.src_uri.startswith("outside/"):
        return markdown
    return _rewritten(markdown, f"docs/{page.file.src_uri}", Path(config["docs_dir"]).parent)


def _targets(text: str, path: str) -> list[str]:
    return [target for link in LINK.finditer(_prose(text)) if (target := _resolved(link[2], path)) is not None]


def _prose(text: str) -> str:
    """Return the text without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def _resolved(link: str, path: str) -> str | None:
    """Return what a link on the page *path* names, relative to the repository; None for an address elsewhere."""
    if re.match(r"[a-z]+:", link) or link.startswith("/"):
        return None
    return os.path.normpath(PurePosixPath(path).parent / link)


def _inside(target: str) -> bool:
    return target == "docs" or target.startswith("docs/")


def _uri(root: Path, target: str) -> str:
    """Return the page that stands for a file or folder outside docs/."""
    if target.endswith(".md"):
        return f"outside/{target}"
    return f"outside/{target}/index.md" if (root / target).is_dir() else f"outside/{target}.md"


def _place(root: Path, target: str) -> str:
    """Return where a file of the repository is in the site."""
    if target == "docs":
        return "README.md"
    return target.removeprefix("docs/") if _inside(target) else _uri(root, target)


def _rewritten(text: str, path: str, root: Path) -> str:
    """Return the text of the page *path* with links that hold in the site."""
    here = PurePosixPath(_place(root, path)).parent

    def replaced(link: re.Match[str]) -> str:
        target = _resolved(link[2], path)
        if (
            target is None
            or not (root / target).exists()
            or (_inside(path) and _inside(target) and (root / target).is_file())
        ):
            return link[0]
        if _inside(target) and (root / target).is_dir() and target != "docs":
            return f"{link[1]}{os.path.relpath(_first(root, target), here)}{link[3]}"
        return f"{link[1]}{os.path.relpath(_place(root, target), here)}{link[3]}"

    return LINK.sub(replaced, text)


def _first(root: Path, folder: str) -> str:
    """Return the first page of a folder of docs/."""
    return min((root / folder).glob("*.md")).relative_to(root / "docs").as_posix()


def _page(path: Path, target: str) -> str:
    if path.is_dir():
        names = sorted(
            f"{child.name}/" if child.is_dir() else child.name for child in path.iterdir() if child.name not in SKIPPED
        )
        return f"# {target}\n\n" + "\n".join(f"* `{name}`" for name in names) + "\n"
    data = path.read_bytes()[:LARGEST]
    if path.suffix == ".md":
        return data.decode("utf-8")
    text = data.decode("utf-8", errors="replace")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=2) + 1)
    return f"# {target}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"
