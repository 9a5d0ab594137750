"""`make docs`: the site is whole, its reference knows every public name, a browser has no complaint."""

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import plait

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


def script(name):
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


reference = script("make_reference")
make_site = script("make_site")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    make_site.stage(folder)
    return folder


def is_documented(name, public, text):
    """Check that the page of a module has a public name and the beginning of its docstring."""
    value = getattr(importlib.import_module(name), public)
    documented = getattr(value, "__doc__", None) or ""
    opening = ""
    if name != "plait" and callable(value) and not documented.startswith(public):
        opening = documented.strip().split("\n")[0].split("`")[0].split("<")[0].split("*")[0].strip()
    return (f"\n## {public}\n" in text or f"`{public}`" in text) and opening in text


def test_the_reference_has_every_public_name_with_its_words(pages):
    texts = {name: (pages / "reference" / f"{name}.md").read_text() for name in reference.MODULES}
    assert not [
        f"{name}.{public}"
        for name, text in texts.items()
        for public in importlib.import_module(name).__all__
        if not is_documented(name, public, text)
    ]


def test_every_room_a_user_imports_from_has_a_page():
    """Scans are called through models; the command line is described by its own help."""
    library = {f"plait.{room}" for room in plait._PACKAGES} - {"plait.ops", "plait.lab", "plait.integrations"}
    lab = {
        f"plait.lab.{folder.parent.name}" for folder in Path(plait.__file__).parent.glob("lab/*/__init__.py")
    }
    lab -= {"plait.lab.bench", "plait.lab.cli", "plait.lab.commands"}
    covered = {name.rpartition(".")[0] for name in reference.MODULES} | set(reference.MODULES)
    assert library | lab <= covered


def test_every_name_of_plait_and_every_module_of_the_pages_is_in_the_reference():
    documented = {
        name for module in reference.MODULES[1:] for name in importlib.import_module(module).__all__
    }
    assert set(plait.__all__) - documented == {"__version__"}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    imported = {
        module
        for page in pages
        for module in re.findall(r"^ *from (plait[\w.]*) import", page.read_text(), re.MULTILINE)
    }
    assert imported <= {*reference.MODULES, "plait"}


def test_docstrings_become_markdown():
    docstring = (
        "Say x < y.\n\nArgs:\n    x: what `a<b` is,\n        at length.\n    **rest: more.\n\n>>> 1 + 1\n2"
    )
    expected = [
        *(
            "Say x &lt; y.",
            "",
            "",
            "**Args**",
            "",
            "- `x`: what `a<b` is,",
            "  at length.",
            "- `**rest`: more.",
        ),
        *("", "", "```pycon", ">>> 1 + 1", "2", "```"),
    ]
    assert reference.markdown(docstring).split("\n") == expected


def test_every_link_of_the_pages_leads_to_a_page(pages):
    for page in pages.rglob("*.md"):
        text = make_site.FENCE.sub("", page.read_text())
        for _, label, address, _ in make_site.LINK.findall(text):
            assert "://" in address or (page.parent / address).is_file(), f"{page.name}: [{label}]({address})"
        assert "../src" not in text


def test_the_menu_has_every_page(pages):
    menu = (ROOT / "zensical.toml").read_text()
    own = [page.relative_to(pages).as_posix() for page in pages.rglob("*.md")]
    assert not [
        name
        for name in own
        if f'"{name}"' not in menu and not name.startswith(("results", "tests", "CHANGELOG"))
    ]
    assert set(re.findall(r'"([\w./-]+\.md)"', menu)) <= set(own)


def test_no_title_is_printed_twice(pages):
    """A link to a file becomes its page's title, which may stand beside it already."""
    twice = []
    for page in pages.rglob("*.md"):
        rows = [line for line in make_site.FENCE.sub("", page.read_text()).splitlines() if line[:1] == "|"]
        for row in rows:
            titles = [label for _, label, *_ in make_site.LINK.findall(row)]
            words = make_site.LINK.sub(r"\2", row)
            twice += [f"{page.name}: {title}" for title in titles if words.count(f"| {title}") > 1]
    assert twice == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built in a copy, so that the tests leave the checkout's build/ alone."""
    pytest.importorskip("zensical", reason="needs zensical: pip install 'plait[docs]'")
    root = tmp_path_factory.mktemp("checkout")
    for name in ("docs", "src", "results"):
        (root / name).symlink_to(ROOT / name)
    for name in ("zensical.toml", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    make_site.stage(root / "build" / "pages")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "build" / "site"


def test_a_broken_link_is_an_error(site, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")
    (tmp_path / "zensical.toml").write_text(
        '[project]\nsite_name = "x"\ndocs_dir = "pages"\nsite_dir = "site"\n'
    )
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
@pytest.mark.parametrize("where", ["served", "from disk"])
def test_in_a_browser(address, site, where):
    engine = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install 'plait[browser]'"
    )
    if where == "from disk":
        address = site.as_uri()
    complaints, elsewhere = [], []
    with engine.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for width in (400, 1200) if where == "served" else (1200,):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda asked: asked.url.startswith(address) or elsewhere.append(asked.url))
            for name in ("index", "start", "tutorials/sparse", "differences", "reference/plait.models"):
                page.goto(f"{address}/{name}.html", wait_until="networkidle")
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{name} is {wide} wide at {width}"
                if name == "index":
                    cut = "code => code.filter(block => block.scrollWidth > block.clientWidth + 1).length"
                    assert page.eval_on_selector_all("pre > code", cut) == 0, f"code is cut off at {width}"
        page.goto(f"{address}/notation.html", wait_until="networkidle")
        assert page.get_by_text("RelevancyMemory").count() == 0
        page.keyboard.press("Control+k")
        page.keyboard.type("relevancy")
        page.get_by_text("RelevancyMemory").first.wait_for(timeout=20_000)
        browser.close()
    assert not complaints
    assert not [url for url in elsewhere if not url.startswith(("data:", "blob:"))]
