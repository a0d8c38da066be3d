"""The page in a real browser: it is drawn, it answers a click, it fits a phone, and it does no harm."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from made_digests import made, made_with_loss, paper_grid, paper_sweep

from fedcm.reports.digest import Digest
from fedcm.reports.entry import MEASURES
from fedcm.reports.story import Story, told
from fedcm.reports.writing import end_live, write_page

CHROMIUM = next(
    (there for name in ("chromium", "chromium-browser", "google-chrome") if (there := shutil.which(name))), None
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
def opened(browser: Any, tmp_path: Path) -> Open:
    """Opens the page of some runs from the disk; the window is so many pixels wide."""

    def open_page(*runs: Digest, width: int = 1200, dark: bool = False) -> Any:
        path = write_page(story_of(*runs), tmp_path)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    return open_page


def story_of(*runs: Digest) -> Story:
    return told(runs, [], datetime.now(UTC))


def found(browser: Any, selector: str) -> list[Any]:
    return browser.find_elements("css selector", selector)


def texts(browser: Any, selector: str) -> list[str]:
    """What is seen; of what is hidden, nothing."""
    return [words for element in found(browser, selector) if (words := " ".join(element.text.split()))]


def wait(browser: Any, condition: Callable[[Any], Any]) -> Any:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    gone = (StaleElementReferenceException,)  # with the page that has just been left
    return WebDriverWait(browser, 20, 0.05, ignored_exceptions=gone).until(condition)


def drawn_lines(browser: Any) -> int:
    """The outline of a band has no width."""
    script = "return [...document.querySelectorAll('#curves-plot .js-line')].map(e => getComputedStyle(e).strokeWidth)"
    return sum(width != "0px" for width in browser.execute_script(script))


def complaints(browser: Any) -> list[Any]:
    return [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_without_an_error_and_draws_everything(opened: Open, dark: bool) -> None:
    browser = opened(*paper_grid(), dark=dark)
    wait(browser, lambda b: drawn_lines(b) == 5)
    assert len(found(browser, "#participation .barlayer .point")) > 0
    assert len(found(browser, "#mixes .heatmaplayer image")) == 2
    assert complaints(browser) == []
    assert browser.title == "made – fedcm report"


def test_nothing_is_fetched(opened: Open) -> None:
    browser = opened(*paper_grid())
    names = browser.execute_script("return performance.getEntriesByType('resource').map(r => r.name)")
    assert [name for name in names if not name.startswith(("data:", "blob:"))] == []


def test_a_click_on_the_legend_takes_a_curve_away_and_brings_it_back(opened: Open) -> None:
    browser = opened(*paper_grid())
    wait(browser, lambda b: drawn_lines(b) == 5)
    assert texts(browser, ".legend button") == ["FedCM", "FedAvg", "FedAdam", "SCAFFOLD", "FedDyn"]
    found(browser, ".legend button")[1].click()
    wait(browser, lambda b: drawn_lines(b) == 4)
    assert found(browser, ".legend button")[1].get_attribute("aria-pressed") == "false"
    found(browser, ".legend button")[1].click()
    wait(browser, lambda b: drawn_lines(b) == 5)
    assert complaints(browser) == []


def test_seeds_are_a_mean_with_a_band_or_lines_of_their_own(opened: Open) -> None:
    browser = opened(*[made(accuracy=0.7 + seed / 100, seed=seed) for seed in range(3)])
    wait(browser, lambda b: drawn_lines(b) == 1)
    assert len(found(browser, "#curves-plot .js-fill")) == 1
    found(browser, "input[name=single]")[0].click()
    wait(browser, lambda b: drawn_lines(b) == 4)


def test_every_choice_draws_without_an_error(opened: Open) -> None:
    browser = opened(*paper_grid(), *[run.model_copy(update={"name": "b"}) for run in paper_grid(seed=2)])
    wait(browser, lambda b: drawn_lines(b) == 5)
    for name in ("y", "x", "cell"):
        for option in found(browser, f"select[name={name}] option"):
            option.click()
            wait(browser, lambda b: drawn_lines(b) == 5)
    for name in ("logy", "logx", "single"):
        found(browser, f"input[name={name}]")[0].click()
    wait(browser, lambda b: drawn_lines(b) == 15)
    assert complaints(browser) == []


def chosen(browser: Any, name: str) -> str:
    return browser.execute_script(f"return document.querySelector('select[name={name}]').value")


def test_the_curves_of_a_regression_are_of_its_test_loss(opened: Open) -> None:
    browser = opened(made_with_loss(loss=0.3), made_with_loss("fedavg", 0.2))
    wait(browser, lambda b: drawn_lines(b) == 2)
    assert chosen(browser, "y") == "test_loss"
    assert texts(browser, "select[name=y] option") == ["test loss", "training loss"]
    assert "test loss against round" in texts(browser, "#curves-caption")[0]
    assert texts(browser, ".result tbody td b") == ["0.2000"]
    assert complaints(browser) == []


def test_a_cell_is_shown_by_its_own_metric_until_the_reader_chooses_another(opened: Open) -> None:
    losses = [made_with_loss(source="toy"), made_with_loss("fedavg", 0.4, source="toy")]
    browser = opened(made(), made("fedavg"), *losses)
    wait(browser, lambda b: drawn_lines(b) == 2)
    options = found(browser, "select[name=cell] option")
    assert chosen(browser, "y") == "test_accuracy"
    options[1].click()
    wait(browser, lambda b: drawn_lines(b) == 2)
    assert chosen(browser, "y") == "test_loss"
    options[0].click()
    assert chosen(browser, "y") == "test_accuracy"
    found(browser, "select[name=y] option[value=train_loss]")[0].click()
    options[1].click()
    assert chosen(browser, "y") == "train_loss"
    wait(browser, lambda b: drawn_lines(b) == 2)
    assert complaints(browser) == []


def test_without_an_evaluation_the_curves_are_of_the_training_loss(opened: Open) -> None:
    run = made(curve=[0.1] * 40)
    untested = run.curve.model_copy(update={"test_accuracy": [None] * 40, "test_loss": [None] * 40})
    browser = opened(run.model_copy(update={"curve": untested, "summary": run.summary | {"accuracy": None}}))
    wait(browser, lambda b: drawn_lines(b) == 1)
    assert chosen(browser, "y") == "train_loss"


def test_the_tables_numbers_are_the_runs_and_follow_the_measure(opened: Open) -> None:
    runs = [made(accuracy=0.8123, published=81.5), made(accuracy=0.8323, seed=2), made("fedavg", 0.5)]
    browser = opened(*runs)
    assert texts(browser, ".result tbody td") == ["82.23 ± 1.41 published 81.50 2 seeds", "50.00 1 seed"]
    for measure, figure in (("last", "83.23"), ("best", "84.23"), ("mean_last", "82.23")):
        assert measure in MEASURES
        found(browser, f"input[value={measure}]")[0].click()
        assert texts(browser, ".result tbody td b") == [figure]


def test_a_run_named_like_a_script_does_no_harm(opened: Open) -> None:
    evil = "<script>document.title='harm'</script><img src=x onerror=\"document.title='harm'\"><b>bold</b>"
    runs = [made(name=f"{evil}{k}", seed=k, labels={evil: evil}, experiment=evil, source=evil) for k in range(2)]
    other = made(f"my:{evil}", labels={evil: evil}, experiment=evil, source=evil)
    browser = opened(*runs, other)
    wait(browser, lambda b: drawn_lines(b) == 2)
    found(browser, "input[name=single]")[0].click()
    for place in found(browser, "#curves-plot .nsewdrag"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)
        hover(browser, place)
    wait(browser, lambda b: found(b, "#curves-plot .hoverlayer text"))
    assert "harm" not in browser.title.replace(evil[:80], "")
    assert found(browser, "img") == []
    assert "<b>bold</b>" in texts(browser, ".legend button")[1]
    assert [line for line in complaints(browser) if "harm" in line["message"] or "UserError" in line["message"]] == []


def test_what_diverged_has_its_round_in_place_of_every_measure(opened: Open) -> None:
    browser = opened(made("scaffold", 0.5, state="diverged", rounds=40), made("fedavg", 0.4), made(accuracy=0.3))
    for measure in MEASURES:
        found(browser, f"input[value={measure}]")[0].click()
        cells = texts(browser, ".result tbody td")
        assert cells[2] == "diverged (round 40)"
        assert len(cells) == 3
    assert "diverged (round 40)" in texts(browser, "#runs tbody td")


def hover(browser: Any, place: Any) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element(place).perform()


@pytest.mark.parametrize("width", [360, 390, 800])
def test_nothing_makes_the_page_wider_than_the_screen(opened: Open, width: int) -> None:
    long_name = "a-run-with-a-very-long-name-" * 6
    lost = [made("scaffold", 0.5, seed=k, state="diverged", published=1.0, setting="II") for k in range(4, 7)]
    long = made(name=long_name, experiment=long_name, seed=3)
    browser = opened(*paper_grid(published=1.0), *paper_sweep(), long, *lost, width=width)
    wait(browser, lambda b: drawn_lines(b) > 4)
    for details in found(browser, "details"):
        browser.execute_script("arguments[0].open = true", details)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_numbers_of_the_curves_are_there_as_a_table(opened: Open) -> None:
    browser = opened(made(curve=[0.25, 0.5]), made("fedavg", curve=[0.125, 0.75]))
    found(browser, "#curves-numbers summary")[0].click()
    assert texts(browser, "#curves-numbers thead th") == ["round", "FedCM", "FedAvg"]
    assert texts(browser, "#curves-numbers tbody tr") == ["1 25 12.5", "2 50 75"]


def test_a_live_page_shows_what_is_new_and_keeps_what_was_picked(opened: Open, tmp_path: Path) -> None:
    browser = opened(made(), made("fedavg"))
    path = write_page(story_of(made(), made("fedavg")), tmp_path, "1")
    browser.get(path.as_uri())
    wait(browser, lambda b: drawn_lines(b) == 2)
    found(browser, ".legend button")[1].click()
    found(browser, "input[value=best]")[0].click()
    write_page(story_of(made(), made("fedavg"), made("scaffold", 0.9)), tmp_path, "2")
    wait(browser, lambda b: len(found(b, ".result tbody tr")) == 3)
    wait(browser, lambda b: drawn_lines(b) == 2 and len(found(b, ".legend button")) == 3)
    assert [button.get_attribute("aria-pressed") for button in found(browser, ".legend button")] == [
        "true",
        "false",
        "true",
    ]
    assert texts(browser, ".result tbody td b") == ["92.00"]
    end_live(story_of(made(), made("feddyn")), tmp_path)
    wait(browser, lambda b: "FedDyn" in texts(b, ".result tbody th"))
    assert complaints(browser) == []
