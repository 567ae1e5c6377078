"""Pages that live outside docs/ (README, CONTRIBUTING, ...), links into the repository, and parts of the navigation."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# a page of the repository's root and its place on the site
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
PROJECT = ["contributing.md", "changelog.md", "benchmarks.md", "security.md", "releasing.md"]
FILES = ["CITATION.cff", "LICENSE"]  # linked to, and copied as they are
REPOSITORY = {site: repository for repository, site in PAGES.items()}
CODE = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections of the navigation that follow from the files that are there."""
    how_to = sorted(path.name for path in (ROOT / "docs" / "how-to").glob("*.md"))
    for section in config.nav or []:
        if "How-to" in section:
            section["How-to"] = [f"how-to/{name}" for name in how_to]
        if "Project" in section:
            section["Project"] = PROJECT
    config.nav = [section for section in config.nav or [] if section != {"How-to": []}]
    config.watch += [str(ROOT / name) for name in PAGES]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files of the repository's root."""
    for repository, site in PAGES.items():
        files.append(File.generated(config, site, abs_src_path=str(ROOT / repository)))
    for name in FILES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that hold in the repository into links that hold on the site."""
    site = page.file.src_uri
    if site == "index.md":
        page.meta["hide"] = ["navigation"]  # the home page is alone in its section
    folder = posixpath.dirname(REPOSITORY.get(site, f"docs/{site}"))
    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(lambda link: _moved(link, folder, site), part) for part in parts[::2]]
    return "".join(parts)


def _moved(link: re.Match[str], folder: str, site: str) -> str:
    text, target = link[1], link[2]
    text = LINK.sub(lambda inner: _moved(inner, folder, site), text)
    path, hash_, anchor = target.partition("#")
    if not path or ":" in path:
        return f"[{text}]({target})"
    path = posixpath.normpath(posixpath.join(folder, path))
    if path in PAGES or path in FILES:
        place = PAGES.get(path, path)
    elif path.startswith("docs/") and not (ROOT / path).is_dir():
        place = path.removeprefix("docs/")
    elif (ROOT / path).exists():
        return text  # a file that only the repository has, such as a module, or a folder
    else:
        place = path  # strict mode then names the broken link
    return f"[{text}]({posixpath.relpath(place, posixpath.dirname(site) or '.')}{hash_}{anchor})"
