"""Takes pictures of a run's report in a real browser, and checks the page as a reader would meet it.

    python benchmarks/screenshots.py RUN... [--out DIR] [--browser chromium] [--axe axe.min.js] [--sections]

For each run (a run directory or an HTML file): the whole page at 1280 and 390 pixels, light and dark, as
`DIR/<run>-<width>-<theme>.png`, and its print as `DIR/<run>.pdf`; with `--sections` also each section alone
and the first screen as a reader sees it without scrolling. It then prints what is wrong, and exits with 1 if
something is: serious and critical faults that axe-core finds, a page wider than its window, text that is cut
off or lies on other text, messages of the page's script, and files that the page wanted to load.

It needs playwright (`pip install playwright`) and Chromium (`apt-get install chromium`, or
`playwright install chromium`). Without `--axe`, axe-core is taken from npm into DIR (`npm pack axe-core`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

WIDTHS = (1280, 390)
HEIGHTS = {1280: 800, 390: 844}
THEMES = ("light", "dark")
_SERIOUS = {"serious", "critical"}

_FAULTS = r"""
() => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1)
    faults.push(`the page is ${root.scrollWidth} pixels wide in a window of ${root.clientWidth}`);
  const name = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}${
    typeof e.className === "string" && e.className ? "." + e.className.trim().replace(/ +/g, ".") : ""} ` +
    `"${(e.textContent || "").trim().slice(0, 50)}"`;
  const scrolls = (e) => {
    for (let at = e; at && at !== document.body; at = at.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return true;
    return false;
  };
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height || e.closest(".skip") || e.closest("svg > defs")) continue;
    const style = getComputedStyle(e);
    if (style.visibility === "hidden") continue;
    if (box.right > root.clientWidth + 1 && !scrolls(e)) faults.push(`beyond the window: ${name(e)}`);
    const clips = ["hidden", "clip"].includes(style.overflowX) && !e.closest("svg");
    if (clips && e.scrollWidth > e.clientWidth + 1)
      faults.push(`cut off: ${name(e)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const title = (svg.querySelector("title")?.textContent || "").slice(0, 40);
    const texts = Array.from(svg.querySelectorAll("text"), (e) => ({ e, box: e.getBoundingClientRect() }))
      .filter((t) => t.box.width && t.e.textContent.trim());
    for (const { e, box } of texts)
      if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2
          || box.bottom > frame.bottom + 2)
        faults.push(`text beyond its picture (${title}): "${e.textContent.trim()}"`);
    if (texts.length > 400) continue;
    let clashes = 0;
    for (let i = 0; i < texts.length; i++)
      for (let j = i + 1; j < texts.length; j++) {
        const a = texts[i].box, b = texts[j].box;
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // Boxes of turned text and of neighbouring lines touch; a fault covers a good part of the other.
        if (across > 3 && down > 0.35 * Math.min(a.height, b.height)
            && across * down > 0.2 * Math.min(a.width * a.height, b.width * b.height)) {
          clashes++;
          if (clashes <= 3) faults.push(`text on text (${title}): "${texts[i].e.textContent.trim()}" and ` +
            `"${texts[j].e.textContent.trim()}"`);
        }
      }
    if (clashes > 3) faults.push(`text on text (${title}): ${clashes - 3} more`);
  }
  return faults;
}
"""


def main() -> int:
    """Take the pictures, print the faults."""
    asked = _arguments()
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        sys.exit("screenshots: playwright is not installed; pip install playwright")
    asked.out.mkdir(parents=True, exist_ok=True)
    axe = asked.axe or _axe(asked.out)
    wrong = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=asked.browser, args=["--no-sandbox", "--force-color-profile=srgb"]
        )
        for run in asked.runs:
            page = run if run.is_file() else run / "report" / "index.html"
            if not page.is_file():
                sys.exit(f"screenshots: {page} is not there; run `sparkgpu report {run}` first.")
            name = run.parent.parent.name if run.is_file() else run.resolve().name
            for width in WIDTHS:
                for theme in THEMES:
                    faults = _look_at(browser, page, name, width, theme, asked, axe)
                    for fault in dict.fromkeys(faults):
                        print(f"{name} {width} {theme}: {fault}")
                    wrong += len(faults)
            _print(browser, page, asked.out / f"{name}.pdf")
            print(f"{name}: {page.stat().st_size / 2**20:.2f} MB, pictures in {asked.out}")
        browser.close()
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("screenshots"))
    parser.add_argument(
        "--browser", default="/usr/bin/chromium", help="the program; default: Debian's Chromium"
    )
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    parser.add_argument("--sections", action="store_true", help="also each section alone")
    return parser.parse_args()


def _axe(folder: Path) -> Path:
    found = folder / "axe.min.js"
    if not found.is_file():
        packed = subprocess.run(
            ["npm", "pack", "--silent", "axe-core"], cwd=folder, check=True, capture_output=True, text=True
        )
        archive = folder / packed.stdout.split()[-1]
        with tarfile.open(archive) as files:
            content = files.extractfile("package/axe.min.js")
            assert content
            found.write_bytes(content.read())
        archive.unlink()
    return found


def _look_at(
    browser: Any, page: Path, name: str, width: int, theme: str, asked: argparse.Namespace, axe: Path
) -> list[str]:
    """The page's faults in one size and theme; its pictures are written."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHTS[width]}, color_scheme=theme, device_scale_factor=1
    )
    tab = context.new_page()
    faults: list[str] = []
    tab.on("console", lambda message: faults.append(f"script: {message.text}"))
    tab.on("pageerror", lambda error: faults.append(f"script: {error}"))
    address = page.resolve().as_uri()
    tab.on(
        "request",
        lambda request: (
            None
            if request.url == address or request.url.startswith("data:")
            else faults.append(f"wants to load {request.url}")
        ),
    )
    tab.goto(address)
    stem = f"{name}-{width}-{theme}"
    tab.screenshot(path=asked.out / f"{stem}.png", full_page=True)
    if asked.sections:
        tab.screenshot(path=asked.out / f"{stem}-first.png")
        for section in tab.query_selector_all("main > section"):
            section.screenshot(path=asked.out / f"{stem}-{section.get_attribute('id')}.png")
    tab.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    faults += tab.evaluate(_FAULTS)
    tab.evaluate(axe.read_text(encoding="utf-8"))
    found = tab.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    for violation in found["violations"]:
        if violation["impact"] in _SERIOUS:
            places = [" ".join(map(str, node["target"])) for node in violation["nodes"]]
            where = f"({len(places)}): {'; '.join(places[:3])}"
            faults.append(f"{violation['impact']}: {violation['help']} {where}")
    context.close()
    return faults


def _print(browser: Any, page: Path, pdf: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    tab = context.new_page()
    tab.goto(page.resolve().as_uri())
    tab.pdf(path=pdf, format="A4", margin=dict.fromkeys(("top", "right", "bottom", "left"), "12mm"))
    context.close()


if __name__ == "__main__":
    sys.exit(main())
