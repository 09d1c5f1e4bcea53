"""The page of an inspection in a browser: without errors, without network, by keyboard, with names.

write_pictures makes the pages; screenshots are left in build/peers/pictures, for people to look at.

    ./dev peers
"""

import json
import math
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from browser import PROGRAM, Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRITE = os.environ.get("HEED_WRITE_PICTURES", ROOT / "build/release/tests/cli/write_pictures")
SCREENS = ROOT / "build/peers/pictures"
KINDS = {"sample": ROOT / "examples/data/it.safetensors", "causal": "causal", "hostile": "hostile",
         "long": "long", "large": "large", "empty": "empty", "broken": "broken", "hollow": "hollow"}
# Pages that heed inspect itself made, on the sample and on a long causal file.
HEED = os.environ.get("HEED_BIN", ROOT / "build/release/cli/heed")
INSPECTED = {"inspected_sample": [], "inspected_causal": ["qk.npz", "--causal", "--tile", "100,40"]}
HEADS = {"inspected_sample": 72, "inspected_causal": 6, "sample": 72, "causal": 10, "hostile": 3, "long": 12, "large": 72, "empty": 0,
         "broken": 3, "hollow": 1}

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("pictures")
    for name, kind in KINDS.items():
        subprocess.run([WRITE, place / name, kind], check=True, capture_output=True)
    draw = np.random.default_rng(5).standard_normal
    np.savez(place / "qk.npz", q=draw((2, 3, 300, 32), np.float32), k=draw((2, 3, 300, 32), np.float32))
    for name, flags in INSPECTED.items():
        subprocess.run([HEED, "inspect", *flags, "--quiet", "--pictures", name,
                        "--html", f"{name}.html"], cwd=place, check=True, capture_output=True)
        (place / f"{name}.html").rename(place / name / "report.html")
    np.savez(place / "before_and_with_a_long_name.npz", q=draw((1, 1, 5, 8)), k=draw((1, 1, 5, 8)))
    subprocess.run([HEED, "inspect", "before_and_with_a_long_name.npz", "--causal", "--quiet", "--pictures",
                    "small", "--against", "before_and_with_a_long_name.npz"], cwd=place, check=True,
                   capture_output=True)
    return place


@pytest.fixture(scope="module")
def browser():
    running = Browser()
    yield running
    running.close()


def data_of(page):
    return json.loads(page.run("document.getElementById('data').textContent"))


def text_of(page, element):
    return page.run(f"document.querySelector('{element}').innerText")


@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", [*KINDS, *INSPECTED])
def test_page_opens_without_a_complaint_and_without_network(kind, dark, width, folder, browser):
    page = browser.page(width=width, dark=dark)
    path = folder / kind / "report.html"
    page.open(path)
    assert page.run("document.documentElement.dataset.ready") == "yes"
    assert page.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert page.run("document.querySelectorAll('#poster button').length") == HEADS[kind]
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    SCREENS.mkdir(parents=True, exist_ok=True)
    screen = SCREENS / f"{kind}_{'dark' if dark else 'light'}_{width}.png"
    screen.write_bytes(page.picture())
    for button in range(min(HEADS[kind], 4)):
        page.run(f"document.querySelectorAll('#poster button')[{button}].click()")
    assert page.complaints == []
    assert page.requests == [f"file://{path}"]


@pytest.mark.parametrize("kind", ["sample", "long", "hostile"])
def test_every_control_has_a_name(kind, folder, browser):
    page = browser.page()
    page.open(folder / kind / "report.html")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in nodes if not node["ignored"] and node["role"]["value"] in
                ("button", "combobox", "radio", "application", "link", "ToggleButton")]
    assert len(controls) > HEADS[kind] + 6
    assert [node for node in controls if not node["name"]["value"].strip()] == []


def test_arrow_keys_move_over_heads(folder, browser):
    page = browser.page()
    page.open(folder / "sample" / "report.html")
    page.run("document.querySelector('#poster button').click();"
             "document.querySelector('#poster button').focus()")
    for key, title in (("ArrowRight", "Layer 0, head 1"), ("ArrowDown", "Layer 1, head 1"),
                       ("End", "Layer 1, head 11"), ("ArrowUp", "Layer 0, head 11"),
                       ("ArrowUp", "Layer 0, head 11"), ("ArrowLeft", "Layer 0, head 10")):
        page.press(key)
        assert text_of(page, "#head-title") == title
        assert page.run("document.activeElement.getAttribute('aria-label')").startswith(title)
    assert page.run("document.querySelectorAll('#poster [tabindex=\"0\"]').length") == 1
    assert page.complaints == []


def test_readout_tells_the_cell_and_its_exact_numbers(folder, browser):
    page = browser.page()
    page.open(folder / "sample" / "report.html")
    page.run("document.querySelectorAll('#poster button')[37].click()")   # layer 3, head 1
    page.run("document.querySelector('#map canvas').focus()")
    for key in ["ArrowDown"] * 11 + ["ArrowRight"] * 2:
        page.press(key)
    readout = text_of(page, "#map .readout")
    assert readout.startswith("Query 10 “it” → key 2 “animal”: weight "), readout
    weight = float(readout.split("weight ")[1].split(",")[0])
    exact = page.run("of(data.found[37], 'meanExact')[10 * 16 + 2]")
    assert weight == pytest.approx(exact, rel=5e-4) and abs(weight - 0.677) < 1e-3
    page.press("Enter")
    assert page.run("document.getElementById('row').value") == "10"
    assert "“animal” 0.677" in text_of(page, "#covered")
    assert page.run("document.querySelector('#map .readout').getAttribute('aria-live')") == "polite"


def test_tokens_choose_rows_by_click_and_by_key(folder, browser):
    page = browser.page()
    page.open(folder / "sample" / "report.html")
    page.run("document.querySelector('#arcs [data-row=\"4\"]').dispatchEvent(new MouseEvent('click'))")
    assert page.run("document.getElementById('row').value") == "4"
    page.press("ArrowRight")
    assert page.run("document.getElementById('row').value") == "5"
    assert page.run("document.activeElement.dataset.row") == "5"


def test_modes_and_theme_change_the_picture(folder, browser):
    page = browser.page()
    page.open(folder / "sample" / "report.html")
    seen = set()
    for mode in ("lift", "linear", "log"):
        page.run(f"document.querySelector('input[value={mode}]').click()")
        seen.add(page.run("document.querySelector('#map canvas').toDataURL()"))
    page.run("document.getElementById('theme').click()")
    seen.add(page.run("document.querySelector('#map canvas').toDataURL()"))
    assert len(seen) == 4
    assert page.run("document.getElementById('theme').getAttribute('aria-pressed')") == "true"
    assert page.complaints == []


def test_exact_tiles_open_and_tell_their_weights(folder, browser):
    page = browser.page()
    page.open(folder / "long" / "report.html")
    assert "Exact: queries 150–165, keys 150–165" in text_of(page, "#tiles")
    page.run("document.querySelectorAll('#tiles button')[1].focus();"
             "document.querySelectorAll('#tiles button')[1].click()")
    assert page.run("document.activeElement.textContent").startswith("Exact")
    page.run("document.querySelector('#map canvas').focus()")
    page.press("ArrowDown")
    weight = page.run("of(chosen(), 'tiles')[0].weights[0]")
    assert text_of(page, "#map .readout").startswith(f"Query 150 → key 150: weight {weight:.6g}, lift ")
    page.run("document.querySelectorAll('#tiles button')[0].click()")
    page.run("document.querySelector('#map canvas').focus()")
    page.press("ArrowDown")
    assert "Queries 0–3" in text_of(page, "#map .readout")


def test_tiles_of_a_real_page_have_the_lift_of_visible_keys(folder, browser):
    page = browser.page()
    page.open(folder / "inspected_causal" / "report.html")
    assert "Exact: queries 100–163, keys 40–103" in text_of(page, "#tiles")
    page.run("document.querySelectorAll('#tiles button')[1].click();"
             "document.querySelector('#map canvas').focus()")
    page.press("ArrowDown")
    weight = page.run("of(chosen(), 'tiles')[0].weights[0]")
    lift = math.log2(weight * 101)   # row 100 sees keys 0 to 100
    told = re.fullmatch(r"Query 100 → key 40: weight ([\d.]+), lift ([+−][\d.]+)", text_of(page, "#map .readout"))
    assert told and float(told[1]) == pytest.approx(weight, rel=1e-5)
    assert float(told[2].replace("−", "-")) == pytest.approx(lift, rel=1e-2)
    assert page.complaints == []


@pytest.mark.parametrize("kind", INSPECTED)
def test_histogram_of_a_real_page_fills_its_axis(kind, folder, browser):
    page = browser.page()
    page.open(folder / kind / "report.html")
    page.run("document.querySelectorAll('#poster button')[3].click()")
    low, high = page.run("chosen().reach")
    titles = page.run("[...document.querySelectorAll('#histogram rect title')].map(one => one.textContent)")
    assert len(titles) == (high - low) * 4      # bins of a quarter
    assert -low <= 8 and high <= 8              # far less than the 32 to which there are bins
    assert page.run("document.querySelectorAll('#histogram circle').length") == 0
    counts = [int(title.split(": ")[1].split()[0]) for title in titles]
    assert sum(counts) >= 0.999 * page.run("chosen().histogram.reduce((a, b) => a + b, 0)")


# Words that a chart cuts off or draws over its highest bar or curve cannot be read.
def test_bars_of_distances_name_those_that_they_hold(tmp_path, browser):
    """Of 1024 heads a bar is five distances; the last before the ends, -64 and 64, has one alone."""
    tensors = dict(zip("qk", np.random.default_rng(7).standard_normal((2, 32, 32, 100, 2), np.float32)))
    np.savez(tmp_path / "qk.npz", **tensors)
    told = subprocess.run([HEED, "inspect", "qk.npz", "--quiet", "--json", "--html", "page.html"], cwd=tmp_path, check=True,
                          capture_output=True).stdout
    mass = json.loads(told)["found"][0]["distance_mass"]
    page = browser.page(width=1440)
    page.open(tmp_path / "page.html")
    page.run("chooseHead(0)")
    text = page.run("document.querySelector('#distance').innerHTML")
    held = re.findall(r"distance ([−0-9]+)(?: to ([−0-9]+)| and beyond)?: ([-0-9.e]+)", text)
    assert len(held) == 29, text
    number = [[int(x.replace("−", "-")) if x else None for x in one[:2]] for one in held]
    assert [number[0], number[1], number[-2], number[-1]] == [[-64, None], [-63, None], [63, None], [64, None]]
    for (near, far), (*_, shown) in zip(number, held):
        first, last = min(near, near if far is None else far), max(near, near if far is None else far)
        assert sum(mass[64 + first:65 + last]) == pytest.approx(float(shown), rel=1e-3), (near, far)


@pytest.mark.parametrize("width", [1440, 400])
def test_words_of_charts_stand_free(width, folder, browser):
    page = browser.page(width=width)
    page.open(folder / "inspected_sample" / "report.html")
    for head in (2, 3, 38, 71):
        page.run(f"document.querySelectorAll('#poster button')[{head}].click()")
        for chart in ("histogram", "distance"):
            cut, over = page.run(f"""(() => {{
              const svg = document.querySelector('#{chart} svg'), [, , width, height] = svg.getAttribute('viewBox').split(' ');
              const texts = [...svg.querySelectorAll('text')], box = one => one.getBBox();
              const apart = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
              const cut = texts.filter(one => box(one).x < 0 || box(one).x + box(one).width > +width || box(one).y + box(one).height > +height);
              const drawn = [...svg.querySelectorAll('rect, path')].map(box);
              const over = texts.filter((one, i) => drawn.some(other => !apart(box(one), other)) ||
                texts.slice(i + 1).some(other => !apart(box(one), box(other))));
              return [cut, over].map(list => list.map(one => one.textContent)); }})()""")
            assert (cut, over) == ([], []), (head, chart)


@pytest.mark.parametrize("width", [1440, 400])
def test_stripes_are_named_for_what_they_are(width, folder, browser):
    page = browser.page(width=width)
    page.open(folder / "inspected_causal" / "report.html")
    for legend in ("#legend", "#map-legend"):
        assert text_of(page, legend).endswith("hidden, or no number")
    assert text_of(page, "#entropy-legend").endswith("no two keys to choose from, or NaN")
    assert text_of(page, "#saturation-legend").endswith("no number")
    assert page.run("document.querySelectorAll('.swatch').length") >= 4
    assert page.run("""[...document.querySelectorAll('.swatch')].every(one => {
      const [sign, words] = [one, one.parentElement].map(part => part.getBoundingClientRect());
      return words.height < 24 && sign.top >= words.top && sign.bottom <= words.bottom; })""")


def test_rows_of_nan_are_told_in_words(folder, browser):
    page = browser.page()
    page.open(folder / "broken" / "report.html")
    assert text_of(page, "#covered") == "Row 3 has no weights: it sees no key, or is NaN."
    assert "in a column of keys (not known)." in text_of(page, "#map")
    page.run("document.querySelectorAll('#poster button')[1].click()")
    assert "largest weights shown hold " in text_of(page, "#covered")
    assert re.search(r"in a column of keys \(longest [\d.]+ %\)", text_of(page, "#map"))


def inspected(folder, browser, *flags, **tensors):
    """The page of some tensors, opened."""
    np.savez(folder / "qk.npz", **tensors)
    subprocess.run([HEED, "inspect", "qk.npz", "--quiet", "--html", "page.html", *flags], cwd=folder, check=True)
    page = browser.page()
    page.open(folder / "page.html")
    return page


def test_nan_and_infinity_are_not_told_as_hidden(tmp_path, browser):
    q, k = np.random.default_rng(11).standard_normal((2, 1, 2, 12, 8), np.float32)
    q[0, 0, 5, 2] = np.nan
    k[0, 1, 3] = [-np.inf, 0, 0, 0, 0, 0, 0, 0]
    q[0, 1, :, 0] = 1
    page = inspected(tmp_path, browser, "--causal", "--rows", "5,7", q=q, k=k)
    page.run("chooseHead(0); chooseRow(5, false)")
    assert [page.run(f"describeCell(chosen(), 5, {key})") for key in (4, 9)] == ["Query 5 → key 4: no number", "Query 5 → key 9: hidden"]
    bars = "[...document.querySelectorAll('#story title')].map(one => one.textContent)"
    steps = [page.run(bars)[12 * step:12 * step + 12] for step in range(4)]
    assert steps[0] == steps[1] == [f"{key}: no number" for key in range(12)]
    assert steps[2] == [f"{key}: {'no number' if key < 6 else 'hidden'}" for key in range(12)]
    assert "they add up to" in text_of(page, "#story") and "sink" not in text_of(page, "#story")
    page.run("chooseHead(1); chooseRow(7, false)")
    told = page.run(bars)
    assert [told[12 * step + 3] for step in range(4)] == ["3: −∞", "3: −∞", "3: −∞", "3: 0"] and told[2 * 12 + 8] == "8: hidden"
    assert page.complaints == []


def test_rows_of_padding_are_drawn_without_a_complaint(tmp_path, browser):
    q, k = np.random.default_rng(13).standard_normal((2, 1, 2, 100, 8), np.float32)
    page = inspected(tmp_path, browser, "--query-lengths", "60", "--key-lengths", "60", q=q, k=k)
    assert page.complaints == [] and "has no weights" in text_of(page, "#covered")   # of the last row, which is drawn first


def test_a_nan_row_takes_no_other_row_from_linear_maps(tmp_path, browser):
    q, k = np.random.default_rng(12).standard_normal((2, 1, 1, 200, 8), np.float32)
    q[0, 0, 150, 0] = np.nan
    page = inspected(tmp_path, browser, "--causal", q=q, k=k)
    assert page.run("describeCell(chosen(), 72, 10)") == "Queries 150–152 → keys 21–22: no number"
    page.run("document.querySelector('input[value=linear]').click()")
    most = page.run("Math.max(...of(chosen(), 'meanExact').filter(Number.isFinite))")
    assert page.run("scaleOf('linear', chosen()).high") == most < 1
    page.run("document.querySelectorAll('#tiles button')[1].click()")
    weights = page.run("of(chosen(), 'tiles')[0].weights.filter(Number.isFinite)")
    assert len(weights) == 64 * 64 - 15         # row 150 sees keys up to its own; the tile begins with 136
    assert text_of(page, "#map-legend").split()[:2] == ["0", f"{max(weights):.3g}"]
    drawn = page.run("""(() => { const index = []; const tile = of(chosen(), 'tiles')[0]; const show = map.show;
      map.show = view => { for (let c = 0; c < 64; ++c) index.push(view.index(10, c), view.index(14, c)); };
      showTile(chosen(), tile); map.show = show; return index; })()""")
    assert [one > 0 for one in drawn[::2]] == [c <= 10 for c in range(64)]     # row 146, as far as it sees
    assert set(drawn[1::2]) == {0} and page.complaints == []                   # row 150


def test_what_is_beyond_the_steps_of_a_map_is_told_as_beyond(tmp_path, browser):
    q, k = np.random.default_rng(15).standard_normal((2, 1, 4, 96, 16), np.float32)
    page = inspected(tmp_path, browser, "--scale", "3", q=q, k=k)
    assert page.run("data.maps.exact") is False
    scores = 3 * q[0, 0].astype(float) @ k[0, 0].astype(float).T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    told = page.run("chooseHead(0); [...Array(96 * 96).keys()].map(cell => describeCell(data.found[0], Math.floor(cell / 96), cell % 96))")
    beyond = 0
    for text, weight in zip(told, weights.ravel(), strict=True):
        about, number, mark, lift = re.fullmatch(r".*: weight ([≈≤]) ([\d.e−]+), lift ([≈≤]) ([+−]?[\d.]+)", text).groups()
        number, lift = (float(one.replace("−", "-")) for one in (number, lift))
        beyond += about == "≤"
        assert weight < 2.36e-8 and number == 2.3e-8 if about == "≤" else number == pytest.approx(weight, rel=0.09)   # two digits
        assert 96 * weight < 2**-12.6 and lift == -12.7 if mark == "≤" else lift == pytest.approx(np.log2(96 * weight), abs=0.051)
    assert 1000 < beyond < 8000


def test_the_legend_of_all_heads_gives_linear_maps_no_common_end(folder, browser):
    page = browser.page()
    page.open(folder / "inspected_sample" / "report.html")
    page.run("document.querySelector('input[value=linear]').click()")
    ends = set()
    for head in (2, 5, 30):
        page.run(f"document.querySelectorAll('#poster button')[{head}].click()")
        ends.add(text_of(page, "#map-legend").split()[1])
        assert text_of(page, "#legend").split("\n")[:2] == ["0", "largest of each head"]
    assert len(ends) == 3


def test_nothing_is_hidden_only_where_no_head_hides_a_key(tmp_path, browser):
    q, k = np.random.default_rng(13).standard_normal((2, 2, 2, 12, 8), np.float32)
    page = inspected(tmp_path, browser, q=q, k=k, key_lengths=np.array([12, 7]))
    assert re.fullmatch(r"Of the first layer and head\. Tiles of \d+ queries × \d+ keys in all layers and heads: 4 of 4 computed, 0 skipped\.",
                        text_of(page, "#mask-text"))
    page = inspected(tmp_path, browser, q=q, k=k)
    assert text_of(page, "#mask-text") == "Nothing is hidden: every query sees every key. All 4 tiles are computed."


def test_pages_count_one_and_none(tmp_path, browser):
    q, k = np.random.default_rng(14).standard_normal((2, 1, 1, 1, 8), np.float32)
    page = inspected(tmp_path, browser, q=q, k=k)
    assert text_of(page, "#facts").split("\n")[:3] == ["1 × 1 head", "1 query", "1 key"]
    assert text_of(page, "#mask-text") == "Nothing is hidden: every query sees every key. The one tile is computed."
    page = inspected(tmp_path, browser, "--scale", "1", q=q[..., :0], k=k[..., :0])
    assert text_of(page, "#mask-text") == "Nothing is hidden: every query sees every key. There are no tiles: the head size is 0."
    assert text_of(page, "#histogram p").startswith("1 score; 0 below ")
    page = inspected(tmp_path, browser, q=np.repeat(q, 2, 0), k=np.repeat(k, 2, 0), key_lengths=np.array([1, 0]))
    page.run("chooseHead(1)")
    assert text_of(page, "#histogram p").startswith("0 scores; 0 below ")


def test_table_sorts_by_any_column(folder, browser):
    page = browser.page()
    page.open(folder / "sample" / "report.html")
    page.run("document.querySelectorAll('#all-head button')[1].click()")
    column = [float(text) for text in page.run(
        "[...document.querySelectorAll('#all tr td:nth-child(2)')].map(cell => cell.textContent)")]
    assert column == sorted(column, reverse=True)
    assert page.run("document.querySelectorAll('#all-head th')[1].getAttribute('aria-sort')") == "descending"


def test_hostile_tokens_are_text(folder, browser):
    page = browser.page()
    page.open(folder / "hostile" / "report.html")
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.querySelectorAll('img, iframe, [onerror]').length") == 0
    assert "<img src=x" in page.run("document.getElementById('row').innerText")
    assert page.complaints == []


def pictures(folder):
    found = sorted(folder.glob("*.svg"))
    assert found, folder
    return found


# The outline of some signs is wider than what is inked; two pixels are the margin.
@pytest.mark.parametrize("kind", [*INSPECTED, "small", "sample", "causal"])
def test_words_of_every_svg_are_within_it(kind, folder, browser):
    page = browser.page()
    for path in pictures(folder / kind):
        page.open(path)
        cut = page.run("""(() => { const all = document.documentElement.getBoundingClientRect();
          return [...document.querySelectorAll('text')].filter(one => { const box = one.getBoundingClientRect();
            return box.width && (box.left < all.left - 2 || box.right > all.right + 2 ||
                                 box.top < all.top - 2 || box.bottom > all.bottom + 2); }).map(one => one.textContent); })()""")
        assert cut == [], path


@pytest.mark.parametrize("kind", [*INSPECTED, "sample", "hostile", "long", "empty", "broken", "hollow"])
def test_every_svg_is_one(kind, folder, browser):
    page = browser.page()
    for path in pictures(folder / kind):
        page.open(path)
        assert page.run("document.documentElement.tagName") == "svg", path
        assert page.run("document.getElementsByTagName('parsererror').length") == 0, path
        assert page.run("document.getElementsByTagName('script').length") == 0, path
    assert page.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_of_a_study_opens_without_a_complaint_and_without_network(dark, tmp_path, browser):
    import heed
    path = heed.study.masks().save(tmp_path / "masks.html")
    page = browser.page(width=400, dark=dark)
    page.open(path)
    assert page.run("document.querySelectorAll('svg').length") == 1
    before = page.run("document.documentElement.scrollHeight")
    page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.run("document.documentElement.scrollHeight") > before + 1000    # 72 and more rows
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    grounds = {page.run(f"getComputedStyle(document.querySelector('{one}')).backgroundColor") for one in ("body", "svg")}
    assert grounds == ({"rgb(16, 18, 22)", "rgb(22, 24, 28)"} if dark else {"rgb(246, 245, 242)", "rgb(255, 255, 255)"})
    SCREENS.mkdir(parents=True, exist_ok=True)
    (SCREENS / f"study_{'dark' if dark else 'light'}_400.png").write_bytes(page.picture())
    assert page.complaints == [] and page.requests == [f"file://{path}"]
