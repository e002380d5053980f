#!/usr/bin/env python3
"""Looks at the pages of `pipewright report` in headless Chromium: they draw, say nothing on the console, ask for
nothing, fit 420 pixels, are readable in the light and in the dark, and work without scripts. A page that is served
follows its run and stays in place.

    scripts/report_in_browser.py PIPEWRIGHT [--shots FOLDER]

Needs Python's `playwright`, and `chromium`.
"""
import argparse
import contextlib
import pathlib
import shutil
import subprocess
import tempfile

from playwright.sync_api import sync_playwright

SMALL = ["--set", "model.dim=32", "--set", "data.seq=32", "--set", "train.validate_every=10"]
# Runs with an even and with an odd number of charts, and enough runs for a legend of several rows.
RUNS = {
    "one": ["--steps", "40", "--trace=3"],
    "other-with-a-rather-long-name": ["--steps", "30", "--trace=3", "--set", "pipeline.schedule=zb-h1",
                                      "--set", "pipeline.replicas=2"],
    "without-perplexity": ["--steps", "30", "--set", "optimizer.label_smoothing=0.1", "--trace=1"],
}
SIZES = [(1200, 900), (420, 800)]

# Texts whose contrast with what is behind them is below 4.5 (WCAG 2.1, AA), that leave their picture, or that lie on
# each other.
FAULTS = """() => {
  const faults = []
  const parts = colour => colour.match(/[\\d.]+/g).map(Number)
  const light = colour => {
    const [r, g, b] = parts(colour).slice(0, 3).map(part => {
      part /= 255
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor
      const [, , , alpha = 1] = parts(colour)
      if (alpha === 1) return colour
    }
    return 'rgb(255, 255, 255)'
  }
  const visible = element => element.checkVisibility() && element.getBoundingClientRect().width > 0
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    if (!walker.currentNode.textContent.trim() || !visible(element) || element.closest('title')) continue
    const style = getComputedStyle(element)
    const [a, b] = [light(element.closest('svg') ? style.fill : style.color), light(ground(element))]
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(1)}: ${element.textContent}`)
  }
  for (const svg of document.querySelectorAll('figure svg')) {
    if (!visible(svg)) continue
    const box = svg.getBoundingClientRect()
    const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()])
    for (const [text, at] of texts)
      if (at.left < box.left || at.right > box.right || at.top < box.top || at.bottom > box.bottom)
        faults.push(`outside: ${text}`)
    texts.forEach(([text, a], index) => {
      for (const [other, b] of texts.slice(index + 1))
        if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
          faults.push(`on each other: ${text}, ${other}`)
    })
  }
  return faults
}"""


def check(holds, what):
    if not holds:
        raise SystemExit(f"report_in_browser.py: {what}")


@contextlib.contextmanager
def opened(browser, place, **options):
    """A page. What it says on the console, and what it asks for, is a fault."""
    said, asked = [], []
    context = browser.new_context(**options)
    context.set_default_timeout(0)  # A slow machine is no fault.
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(place)
    yield page
    check(not said, f"the console of {place}: {said}")
    others = {url for url in asked if url != place and not url.startswith("data:")}
    check(not others, f"{place} asks for {others}")
    context.close()


def look(browser, place, shots):
    """A page in all sizes, light and dark."""
    for scheme in ("light", "dark"):
        for width, height in SIZES:
            what = f"{pathlib.Path(place).name}, {scheme}, {width} pixels"
            size = {"width": width, "height": height}
            with opened(browser, place, viewport=size, color_scheme=scheme) as page:
                wide = page.evaluate("document.documentElement.scrollWidth")
                check(wide <= width, f"{what}: it is {wide} pixels wide")
                drawn = page.evaluate("""() => [...document.querySelectorAll('svg.chart path.line')]
                    .filter(path => path.dataset.name && path.getTotalLength() > 50).length""")
                check(drawn >= 6, f"{what}: only {drawn} lines are drawn")
                ends = page.evaluate("""() => [...document.querySelectorAll('.charts')].map(grid =>
                    grid.getBoundingClientRect().right - grid.lastElementChild.getBoundingClientRect().right)""")
                check(all(abs(end) < 2 for end in ends), f"{what}: an empty place at the end of the charts: {ends}")
                pictures = page.evaluate("[...document.images].map(image => image.naturalWidth)")
                check(pictures and all(pictures), f"{what}: timelines {pictures}")
                for details in page.query_selector_all("summary"):
                    details.click()
                faults = page.evaluate(FAULTS)
                check(not faults, f"{what}: {faults}")
                if shots:
                    name = f"{pathlib.Path(place).stem}-{scheme}-{width}.png"
                    page.screenshot(path=str(shots / name), full_page=True)


def use(browser, place):
    """Values under the pointer, and the choice of a scale, with scripts and without."""
    for scripts in (True, False):
        with opened(browser, place, viewport={"width": 1200, "height": 900}, java_script_enabled=scripts) as page:
            first, second = (page.locator(f".switch div.{scale}").first for scale in ("linear", "logarithmic"))
            check(first.is_visible() and not second.is_visible(), "the linear chart comes first")
            page.get_by_text("logarithmic", exact=True).click()
            check(second.is_visible() and not first.is_visible(), "the logarithmic chart is shown when asked for")
            check(page.locator("#smoothing").is_visible() == scripts, "only a script can smooth")
            if scripts:
                lines = "[...document.querySelectorAll('path[data-name]')].map(path => path.getAttribute('d'))"
                before = page.evaluate(lines)
                page.locator("#smoothing input").fill("0.9")
                check(page.locator("path.raw").count() > 0, "the lines as they were stay behind")
                smoothed = sum(one != other for one, other in zip(before, page.evaluate(lines)))
                check(0 < smoothed < len(before), f"{smoothed} lines are smoothed; those of validations stay")
                second.hover(position={"x": 250, "y": 150})
                check("(smoothed)" in page.locator("#tip").inner_text(), "the pointer says what is smoothed")
                page.locator("#smoothing input").fill("0")
                check(page.evaluate(lines) == before, "without smoothing, all is as before")
                second.hover(position={"x": 250, "y": 150})
                said = page.locator("#tip").inner_text()
                check("training: " in said and "at step" in said, f"the pointer shows {said!r}")


def follow(browser, pipewright, run):
    """A served page changes with its run, and stays where the reader is."""
    served = subprocess.Popen([pipewright, "report", run, "--serve=0"], stdout=subprocess.PIPE, text=True)
    try:
        place = served.stdout.readline().split(" ")[0] + "/"
        with opened(browser, place, viewport={"width": 420, "height": 800}) as page:
            page.locator("#state", has_text="Live").wait_for()
            page.get_by_text("logarithmic", exact=True).click()
            page.get_by_text("History of", exact=False).last.click()
            page.evaluate("scrollTo(0, 600)")
            metrics = run / "metrics.jsonl"
            lines = metrics.read_text().splitlines(keepends=True)
            metrics.write_text("".join(lines + [lines[-1].replace('"step":39', '"step":44')]))
            page.locator("td", has_text="45 of").wait_for()
            check(page.evaluate("scrollY") == 600, "it stays where it was scrolled to")
            check(page.locator(".switch div.logarithmic").first.is_visible(), "the scale stays as chosen")
            check(page.evaluate("document.querySelectorAll('details[open]').length") == 1, "details stay open")
    finally:
        served.terminate()
        served.wait()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("pipewright", type=pathlib.Path)
    arguments.add_argument("--shots", type=pathlib.Path, help="leave pictures of the pages in this folder")
    given = arguments.parse_args()
    pipewright, shots = given.pipewright.resolve(), given.shots
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        folder = pathlib.Path(folder)
        call = lambda *words: subprocess.run([pipewright, *words], cwd=folder, check=True, capture_output=True)
        for name, options in RUNS.items():
            call("train", "--run-dir", name, *SMALL, *options)
        call("report", "one", "--out", "one.html")
        call("report", *list(RUNS)[:2], "--out", "both.html")
        call("report", *RUNS, "--out", "all.html")
        call("report", "without-perplexity", "--out", "even.html")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in ("one", "even", "both", "all"):
            look(browser, (folder / f"{page}.html").as_uri(), shots)
        use(browser, (folder / "one.html").as_uri())
        follow(browser, pipewright, folder / "one")
        browser.close()
    print("The pages hold in Chromium.")


if __name__ == "__main__":
    main()
