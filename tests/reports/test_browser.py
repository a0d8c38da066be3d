"""The page in a browser: it draws all figures, reacts to clicks, fits a phone, and runs no code of a run's name."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from made_digests import (
    make_crowd,
    make_decentralised_digest,
    make_loss_digest,
    make_paper_grid,
    make_paper_sweep,
    make_test_digest,
)

from fedcm.reports.digest import Digest
from fedcm.reports.document import Document, build_document
from fedcm.reports.entry import MEASURES
from fedcm.reports.write import write_last_page, write_page

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium and its chromedriver are not installed")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,1000"),
)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Open:
    """Return a function that opens the page about some runs in a window of the given width."""

    def open_runs(*runs: Digest, width: int = 1200, dark: bool = False) -> Any:
        path = write_page(build(*runs), tmp_path)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    return open_runs


def build(*runs: Digest) -> Document:
    return build_document(runs, [], datetime.now(UTC))


def find(browser: Any, selector: str) -> list[Any]:
    return browser.find_elements("css selector", selector)


def list_texts(browser: Any, selector: str) -> list[str]:
    """Return the visible texts."""
    return [words for element in find(browser, selector) if (words := " ".join(element.text.split()))]


def wait(browser: Any, condition: Callable[[Any], Any]) -> Any:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    gone = (StaleElementReferenceException,)  # an element of the page before a reload
    return WebDriverWait(browser, 20, 0.05, ignored_exceptions=gone).until(condition)


def count_lines(browser: Any) -> int:
    """Count the curves; the outline of a band has no width."""
    script = "return [...document.querySelectorAll('#curves-plot .js-line')].map(e => getComputedStyle(e).strokeWidth)"
    return sum(width != "0px" for width in browser.execute_script(script))


def list_problems(browser: Any) -> list[Any]:
    return [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]


@pytest.mark.parametrize("dark", [False, True])
def test_page_draws_all_figures_without_an_error(open_page: Open, dark: bool) -> None:
    browser = open_page(*make_paper_grid(), dark=dark)
    wait(browser, lambda b: count_lines(b) == 5)
    assert len(find(browser, "#participation .barlayer .point")) > 0
    assert len(find(browser, "#mixes .heatmaplayer image")) == 2
    assert list_problems(browser) == []
    assert browser.title == "made – fedcm report"


def test_page_fetches_nothing(open_page: Open) -> None:
    browser = open_page(*make_paper_grid())
    names = browser.execute_script("return performance.getEntriesByType('resource').map(r => r.name)")
    assert [name for name in names if not name.startswith(("data:", "blob:"))] == []


@pytest.mark.slow
def test_click_on_the_legend_hides_and_shows_a_curve(open_page: Open) -> None:
    browser = open_page(*make_paper_grid())
    wait(browser, lambda b: count_lines(b) == 5)
    assert list_texts(browser, ".legend button") == ["FedCM", "FedAvg", "FedAdam", "SCAFFOLD", "FedDyn"]
    find(browser, ".legend button")[1].click()
    wait(browser, lambda b: count_lines(b) == 4)
    assert find(browser, ".legend button")[1].get_attribute("aria-pressed") == "false"
    find(browser, ".legend button")[1].click()
    wait(browser, lambda b: count_lines(b) == 5)
    assert list_problems(browser) == []


@pytest.mark.slow
def test_seeds_are_drawn_as_mean_with_band_or_as_single_lines(open_page: Open) -> None:
    browser = open_page(*[make_test_digest(accuracy=0.7 + seed / 100, seed=seed) for seed in range(3)])
    wait(browser, lambda b: count_lines(b) == 1)
    assert len(find(browser, "#curves-plot .js-fill")) == 1
    find(browser, "input[name=single]")[0].click()
    wait(browser, lambda b: count_lines(b) == 4)


@pytest.mark.slow
def test_single_evaluation_is_drawn_as_a_point(open_page: Open) -> None:
    browser = open_page(
        *[make_test_digest(curve=[0.5 + seed / 10], seed=seed) for seed in range(2)],
        make_test_digest("fedavg", curve=[0.4]),
    )
    wait(browser, lambda b: len(find(b, "#curves-plot .point")) == 2)
    assert len(find(browser, "#curves-plot .errorbar")) == 1, "the deviation over two seeds"
    find(browser, "input[name=single]")[0].click()
    wait(browser, lambda b: len(find(b, "#curves-plot .point")) == 4)
    assert list_problems(browser) == []


@pytest.mark.slow
def test_axes_have_percentages_and_plain_numbers(open_page: Open) -> None:
    browser = open_page(make_test_digest(), make_test_digest("fedavg"))
    wait(browser, lambda b: count_lines(b) == 2)
    assert list_texts(browser, "#curves-plot .ytick") == [f"{10 * k} %" for k in range(9)]
    find(browser, "select[name=y] option[value=train_loss]")[0].click()
    find(browser, "input[name=logy]")[0].click()
    wait(browser, lambda b: list_texts(b, "#curves-plot .ytick") == ["0.05", "0.1", "0.2", "0.5", "1", "2"])
    find(browser, "select[name=x] option[value=bytes]")[0].click()
    find(browser, "input[name=logx]")[0].click()
    ticks = ["5 kB", "10 kB", "20 kB", "50 kB", "100 kB"]
    wait(browser, lambda b: list_texts(b, "#curves-plot .xtick") == ticks)


@pytest.mark.slow
def test_all_choices_draw_without_an_error(open_page: Open) -> None:
    browser = open_page(*make_paper_grid(), *[run.model_copy(update={"name": "b"}) for run in make_paper_grid(seed=2)])
    wait(browser, lambda b: count_lines(b) == 5)
    for name in ("y", "x", "cell"):
        for option in find(browser, f"select[name={name}] option"):
            option.click()
            wait(browser, lambda b: count_lines(b) == 5)
    for name in ("logy", "logx", "single"):
        find(browser, f"input[name={name}]")[0].click()
    wait(browser, lambda b: count_lines(b) == 15)
    assert list_problems(browser) == []


def get_choice(browser: Any, name: str) -> str:
    return browser.execute_script(f"return document.querySelector('select[name={name}]').value")


@pytest.mark.slow
def test_curves_of_a_regression_show_its_test_loss(open_page: Open) -> None:
    browser = open_page(make_loss_digest(loss=0.3), make_loss_digest("fedavg", 0.2))
    wait(browser, lambda b: count_lines(b) == 2)
    assert get_choice(browser, "y") == "test_loss"
    assert list_texts(browser, "select[name=y] option") == ["test loss", "training loss"]
    assert "test loss against round" in list_texts(browser, "#curves-caption")[0]
    assert list_texts(browser, ".result tbody td b") == ["0.2000"]
    assert list_problems(browser) == []


@pytest.mark.slow
def test_cell_shows_its_own_metric_until_another_is_chosen(open_page: Open) -> None:
    losses = [make_loss_digest(source="toy"), make_loss_digest("fedavg", 0.4, source="toy")]
    browser = open_page(make_test_digest(), make_test_digest("fedavg"), *losses)
    wait(browser, lambda b: count_lines(b) == 2)
    options = find(browser, "select[name=cell] option")
    assert get_choice(browser, "y") == "test_accuracy"
    options[1].click()
    wait(browser, lambda b: count_lines(b) == 2)
    assert get_choice(browser, "y") == "test_loss"
    options[0].click()
    assert get_choice(browser, "y") == "test_accuracy"
    find(browser, "select[name=y] option[value=train_loss]")[0].click()
    options[1].click()
    assert get_choice(browser, "y") == "train_loss"
    wait(browser, lambda b: count_lines(b) == 2)
    assert list_problems(browser) == []


def test_curves_show_training_loss_without_an_evaluation(open_page: Open) -> None:
    run = make_test_digest(curve=[0.1] * 40)
    untested = run.curve.model_copy(update={"test_accuracy": [None] * 40, "test_loss": [None] * 40})
    browser = open_page(run.model_copy(update={"curve": untested, "summary": run.summary | {"accuracy": None}}))
    wait(browser, lambda b: count_lines(b) == 1)
    assert get_choice(browser, "y") == "train_loss"


@pytest.mark.slow
def test_table_shows_the_runs_numbers_for_each_measure(open_page: Open) -> None:
    runs = [
        make_test_digest(accuracy=0.8123, published=81.5),
        make_test_digest(accuracy=0.8323, seed=2),
        make_test_digest("fedavg", 0.5),
    ]
    browser = open_page(*runs)
    assert list_texts(browser, ".result tbody td") == ["82.23 ± 1.41 published 81.50 2 seeds", "50.00 1 seed"]
    for measure, figure in (("last", "83.23"), ("best", "84.23"), ("mean_last", "82.23")):
        assert measure in MEASURES
        find(browser, f"input[value={measure}]")[0].click()
        assert list_texts(browser, ".result tbody td b") == [figure]


def test_script_in_a_runs_name_is_not_executed(open_page: Open) -> None:
    evil = "<script>document.title='harm'</script><img src=x onerror=\"document.title='harm'\"><b>bold</b>"
    runs = [
        make_test_digest(name=f"{evil}{k}", seed=k, labels={evil: evil}, experiment=evil, source=evil) for k in range(2)
    ]
    other = make_test_digest(f"my:{evil}", labels={evil: evil}, experiment=evil, source=evil)
    browser = open_page(*runs, other)
    wait(browser, lambda b: count_lines(b) == 2)
    find(browser, "input[name=single]")[0].click()
    for place in find(browser, "#curves-plot .nsewdrag"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)
        hover(browser, place)
    wait(browser, lambda b: find(b, "#curves-plot .hoverlayer text"))
    assert "harm" not in browser.title.replace(evil[:80], "")
    assert find(browser, "img") == []
    assert "<b>bold</b>" in list_texts(browser, ".legend button")[1]
    assert [
        line for line in list_problems(browser) if "harm" in line["message"] or "UserError" in line["message"]
    ] == []


@pytest.mark.slow
def test_divergence_replaces_every_measure(open_page: Open) -> None:
    browser = open_page(
        make_test_digest("scaffold", 0.5, state="diverged", rounds=40),
        make_test_digest("fedavg", 0.4),
        make_test_digest(accuracy=0.3),
    )
    for measure in MEASURES:
        find(browser, f"input[value={measure}]")[0].click()
        cells = list_texts(browser, ".result tbody td")
        assert cells[2] == "diverged (round 40)"
        assert len(cells) == 3
    assert "diverged (round 40)" in list_texts(browser, "#runs tbody td")


def hover(browser: Any, place: Any) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element(place).perform()


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 390, 800])
def test_page_is_never_wider_than_the_screen(open_page: Open, width: int) -> None:
    long_name = "a-run-with-a-very-long-name-" * 6
    diverged = [
        make_test_digest("scaffold", 0.5, seed=k, state="diverged", published=1.0, setting="II") for k in range(4, 7)
    ]
    long = make_test_digest(name=long_name, experiment=long_name, seed=3)
    browser = open_page(*make_paper_grid(published=1.0), *make_paper_sweep(), long, *diverged, width=width)
    wait(browser, lambda b: count_lines(b) > 4)
    for details in find(browser, "details"):
        browser.execute_script("arguments[0].open = true", details)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_numbers_of_the_curves_are_shown_as_a_table(open_page: Open) -> None:
    browser = open_page(make_test_digest(curve=[0.25, 0.5]), make_test_digest("fedavg", curve=[0.125, 0.75]))
    find(browser, "#curves-numbers summary")[0].click()
    assert list_texts(browser, "#curves-numbers thead th") == ["round", "FedCM", "FedAvg"]
    assert list_texts(browser, "#curves-numbers tbody tr") == ["1 25 12.5", "2 50 75"]


@pytest.mark.slow
def test_live_page_reloads_and_keeps_the_readers_choices(open_page: Open, tmp_path: Path) -> None:
    browser = open_page(make_test_digest(), make_test_digest("fedavg"))
    path = write_page(build(make_test_digest(), make_test_digest("fedavg")), tmp_path, "1")
    browser.get(path.as_uri())
    wait(browser, lambda b: count_lines(b) == 2)
    find(browser, ".legend button")[1].click()
    find(browser, "input[value=best]")[0].click()
    write_page(build(make_test_digest(), make_test_digest("fedavg"), make_test_digest("scaffold", 0.9)), tmp_path, "2")
    wait(browser, lambda b: len(find(b, ".result tbody tr")) == 3)
    wait(browser, lambda b: count_lines(b) == 2 and len(find(b, ".legend button")) == 3)
    assert [button.get_attribute("aria-pressed") for button in find(browser, ".legend button")] == [
        "true",
        "false",
        "true",
    ]
    assert list_texts(browser, ".result tbody td b") == ["92.00"]
    write_last_page(build(make_test_digest(), make_test_digest("feddyn")), tmp_path)
    wait(browser, lambda b: "FedDyn" in list_texts(b, ".result tbody th"))
    assert list_problems(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_agreement_of_nodes_is_drawn(open_page: Open, dark: bool) -> None:
    runs = [make_decentralised_digest(), make_decentralised_digest("qg-dsgdm"), make_test_digest()]
    browser = open_page(*runs, dark=dark)
    wait(browser, lambda b: len(find(b, "#agreement .scatterlayer .js-line")) == 2)
    assert list_texts(browser, "#agreement .legendtext") == ["d-sgd", "qg-dsgdm"]
    assert list_texts(browser, "#agreement .ytick")[-2:] == ["0.0001", "0.01"]
    find(browser, "select[name=x] option[value=bytes]")[0].click()
    wait(browser, lambda b: "without a server: between all neighbours" in list_texts(b, "#curves-caption")[0])
    assert list_problems(browser) == []


@pytest.mark.slow
def test_crowded_page_shows_the_best_curves_first_and_the_others_on_request(open_page: Open) -> None:
    browser = open_page(*make_crowd(20))
    wait(browser, lambda b: count_lines(b) == 10)
    pressed = [button.text for button in find(browser, ".legend button[aria-pressed=true]")]
    assert {"FedCM", "FedAvg"} < set(pressed)
    names = [button.text for button in find(browser, ".legend button.text")]
    assert names[:5] == ["the best", "all", "none", "averaging", "server momentum"]
    for name, count in (("all", 20), ("averaging", 14), ("averaging", 20), ("none", 0), ("the best", 10)):
        next(button for button in find(browser, ".legend button.text") if button.text == name).click()
        wait(browser, lambda b, count=count: count_lines(b) == count)
    next(button for button in find(browser, ".legend button") if button.text == "fedprox").click()
    wait(browser, lambda b: count_lines(b) == 11)
    assert list_problems(browser) == []


@pytest.mark.slow
def test_long_tables_can_be_sorted(open_page: Open) -> None:
    runs = [*make_crowd(14), make_test_digest("scaffold", state="diverged")]
    browser = open_page(*runs)
    before = list_texts(browser, ".result tbody th")
    figures = list_texts(browser, ".result tbody td b")
    find(browser, ".result thead button")[0].click()
    assert list_texts(browser, ".result tbody td")[0] == figures[0]
    assert list_texts(browser, ".result tbody td")[-1].startswith("diverged")
    assert find(browser, ".result thead th")[1].get_attribute("aria-sort") == "descending"
    find(browser, ".result thead button")[0].click()
    assert list_texts(browser, ".result tbody th")[0] == "FedCM"
    find(browser, ".result thead button")[0].click()
    assert list_texts(browser, ".result tbody th") == before
    find(browser, ".costs thead button")[0].click()
    rounds = [int(text.split()[0]) for text in list_texts(browser, ".costs tbody td:nth-child(2)") if text != "–"]
    assert rounds == sorted(rounds)
    assert len(rounds) == 15
    assert list_problems(browser) == []


@pytest.mark.slow
def test_short_tables_have_no_buttons(open_page: Open) -> None:
    browser = open_page(*make_paper_grid())
    wait(browser, lambda b: count_lines(b) == 5)
    assert find(browser, "thead button") == []
    assert find(browser, ".legend.grouped") == []


@pytest.mark.slow
def test_crowded_page_is_not_wider_than_a_phone(open_page: Open) -> None:
    browser = open_page(*make_crowd(33), make_decentralised_digest(), width=360)
    wait(browser, lambda b: count_lines(b) == 10)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
