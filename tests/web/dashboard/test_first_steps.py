"""The first steps: an empty service and a CSV file, to a prediction, by a browser and by curl."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

from pyramidion import Categorical, Label, Schema
from pyramidion.web.dashboard.curl_commands import Commands
from pyramidion.web.dashboard.first_rows import MOST
from tests.conftest import ROOT
from tests.web.dashboard.filled import logged_in, word_of
from tests.web.service.services import Inside, Process

CHROMIUM = shutil.which("chromium")
SHOTS = ROOT / "build" / "screenshots"
FILE = "it's my flights.csv"
"""A name that a shell would change, were it not quoted."""
ROWS = 400
DOMAINS = {"carrier": ["AA", "DL", "WN"], "gate": ["JFK", "a, b", 'x "y"']}
DRAFTED = """\
time = "time"
[label]
name = "late"
classes = [false, true]
[[features]]
name = "carrier"
type = "categorical"
"""
browsed = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")


def flights() -> str:
    random = np.random.default_rng(7)
    lines = ["time,carrier,gate,km,late"]
    for row in range(ROWS):
        carrier = random.choice(["AA", "DL", "WN"])
        late = random.random() < (0.7 if carrier == "WN" else 0.2)
        gate = random.choice(["JFK", '"a, b"', '"x ""y"""'])
        lines.append(
            f"2024-05-{1 + row % 28:02d}T08:00,{carrier},{gate},{row}.5,{str(late).lower()}"
        )
    return "\n".join(lines) + "\n"


@dataclass
class Walk:
    """What was seen on the way."""

    port: str = ""
    commands: dict[str, str] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    epsilon: float = 0.0
    """That an error takes."""
    prediction: list[float] = field(default_factory=list)
    api: dict[str, Any] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def look(self, page: Page, name: str) -> None:
        """Take a picture of a page, and have axe say what some could not read of it."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"first-steps-{name}.png", full_page=True)
        for each in Axe().run(page).response["violations"]:
            self.troubles.append(f"{name}: {each['id']} {[n['html'] for n in each['nodes']]}")

    def hear(self, text: str) -> None:
        """What the browser says of the page; that a form was refused is no news."""
        if "status of 422" not in text and "[DOM]" not in text:
            self.troubles.append(text)

    def copy(self, page: Page, *names: str) -> None:
        """The commands that stand on a page now."""
        for name in names:
            text = page.locator(f"#curl-{name}").text_content()
            assert text
            self.commands[name] = text


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """The whole way in a browser, on a service that had no stream."""
    folder, seen = tmp_path_factory.mktemp("walk"), Walk()
    (folder / FILE).write_text(flights())
    service = Process(folder)
    try:
        seen.port = service.url.rpartition(":")[2]
        with sync_playwright() as playing:
            browser = playing.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.on("pageerror", lambda error: seen.troubles.append(str(error)))
            page.on("console", lambda told: seen.hear(told.text))
            page.goto(service.url)
            page.get_by_label("Token").fill(service.token())
            page.keyboard.press("Enter")
            page.wait_for_url("**/streams")
            draft(page, folder, seen)
            plan(page, seen)
            rows(page, folder, seen)
            model(page, seen)
            browser.close()
        caller = service.caller()
        name = "it-s-my-flights"
        seen.api["status"] = caller.get(f"/v1/streams/{name}").json()
        seen.api["settings"] = caller.get(f"/v1/streams/{name}/schema").json()["settings"]
        service.stop()
    finally:
        service.close()
    return seen


def draft(page: Page, folder: Path, seen: Walk) -> None:
    page.get_by_role("main").get_by_role("link", name="First steps").press("Enter")
    page.get_by_label("A CSV file").set_input_files(folder / FILE)
    page.wait_for_selector("form[data-read=yes]")
    seen.look(page, "1-file")
    seen.copy(page, "draft")
    page.get_by_role("button", name="Draft the schema").press("Enter")
    page.wait_for_selector("#plan-cost")


def plan(page: Page, seen: Walk) -> None:
    schema = page.get_by_label("The schema", exact=True)
    text = schema.input_value().replace("[0.0, 1.0]", "[0.0, 500.0]")
    for name, domain in DOMAINS.items():  # open ones would meet by chance, elsewhere each time
        text = text.replace(f'"{name}"\ntype', f'"{name}"\ndomain = {json.dumps(domain)}\ntype')
    schema.fill(text)
    for epsilon in ("0.5", "5"):
        page.get_by_label("ε, the budget").fill(epsilon)
        page.wait_for_selector(f"#plan-epsilon data[value='{float(epsilon)}']")
        cost = page.locator("#plan-cost data").get_attribute("value")
        seen.costs[epsilon] = float(cost or "nan")
    page.get_by_label("Error of a probability", exact=True).fill("0.1")
    page.wait_for_selector("th:has-text('ε it takes')")
    seen.look(page, "2-plan")
    seen.epsilon = float(page.locator("#plan-epsilon data").get_attribute("value") or "nan")
    page.get_by_label("ε, the budget").fill("much")
    page.wait_for_selector("#epsilon[aria-invalid] + #wrong-epsilon")
    seen.look(page, "2-mistake")
    page.get_by_label("ε, the budget").fill("inf")
    page.wait_for_selector("#plan-epsilon:has-text('∞')")
    assert page.locator("#wrong-epsilon").count() == 0
    seen.copy(page, "schema", "plan", "create")
    page.get_by_role("button", name="Create the stream").press("Enter")
    page.wait_for_selector("#wrong-seen")
    page.get_by_label("I went through these lines").press("Space")
    page.get_by_role("button", name="Create the stream").press("Enter")
    page.wait_for_selector("#rows-form")


def rows(page: Page, folder: Path, seen: Walk) -> None:
    assert page.get_by_role("button", name="Register and train").count() == 0  # folded away
    page.get_by_label("A CSV file").set_input_files(folder / FILE)
    seen.look(page, "3-rows")
    seen.copy(page, "observe")
    page.get_by_role("button", name="Send").press("Enter")
    page.wait_for_url("**sent=**")


def model(page: Page, seen: Walk) -> None:
    page.get_by_label("What it is called").fill("late-ones")
    page.get_by_text("Others").press("Enter")
    page.get_by_label("RandomForestClassifier").check()
    page.get_by_label("LogisticRegression").check()
    seen.look(page, "4-model")
    seen.copy(page, "register")
    page.get_by_role("button", name="Register and train").press("Enter")
    page.wait_for_selector("#predict-form")
    for name, domain in DOMAINS.items():
        page.get_by_label(name, exact=True).select_option(domain[-1])
    page.get_by_label("km", exact=True).fill("1,500")
    page.get_by_role("button", name="Predict").press("Enter")
    page.wait_for_selector("#wrong-row")  # 1,500 is no number
    page.get_by_label("km", exact=True).fill("150.5")
    seen.copy(page, "predict")
    page.get_by_role("button", name="Predict").press("Enter")
    page.wait_for_selector(".answer")
    numbers = page.locator(".answer tbody data").all()
    seen.prediction = [float(each.get_attribute("value") or "nan") for each in numbers]
    seen.look(page, "5-prediction")
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    seen.look(page, "5-phone")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390


@browsed
def test_the_browser_gets_from_a_file_to_a_prediction(walked: Walk) -> None:
    assert walked.prediction[1] > 0.5
    assert sum(walked.prediction) == pytest.approx(1)
    assert walked.api["status"]["hot_rows"] == ROWS
    states = [window["state"] for window in walked.api["status"]["windows"]]
    assert states.count("sealed") >= 1
    assert walked.api["settings"]["epsilon"] is None
    assert walked.api["settings"]["count_window"] == ROWS // 2
    assert walked.troubles == []


@browsed
def test_the_plan_on_the_page_follows_what_is_chosen(walked: Walk) -> None:
    assert walked.costs["0.5"] > walked.costs["5"] > 0
    assert 0.001 < walked.epsilon < 1_000


@browsed
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_commands_of_the_pages_get_to_the_same_prediction(walked: Walk, tmp_path: Path) -> None:
    service = Process(tmp_path, "--port", walked.port)
    try:
        (tmp_path / FILE).write_text(flights())
        (tmp_path / "auth").write_text(f"Authorization: Bearer {service.token()}\n")
        printed = {name: run(command, tmp_path) for name, command in walked.commands.items()}
    finally:
        service.close()
    assert [*printed] == ["draft", "schema", "plan", "create", "observe", "register", "predict"]
    assert [each for each in printed.values() if '{"error"' in each] == []
    assert json.loads(printed["plan"])["settings"]["epsilon"] is None
    assert printed["observe"].startswith(f'{{"accepted":{ROWS},')
    found = json.loads(printed["predict"])["probabilities"][0]
    assert found == pytest.approx(walked.prediction, abs=1e-6)


def run(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-ec", command],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert not done.stderr
    return done.stdout


# --- without a script -----------------------------------------------------------------------


@pytest.fixture
def visitor(inside: Inside) -> httpx.Client:
    """An admin on a service without streams."""
    return logged_in(inside.url, inside.token())


def sent(
    visitor: httpx.Client, path: str, page: str = "/first-steps", **form: str
) -> httpx.Response:
    word = word_of(visitor.get(page).text)
    return visitor.post(path, data={"csrf": word} | form)


def test_an_admin_of_an_empty_service_is_led_to_the_first_steps(visitor: httpx.Client) -> None:
    assert 'href="/first-steps"' in visitor.get("/streams").text
    assert visitor.get("/first-steps").status_code == 200


def test_others_are_not(inside: Inside) -> None:
    other = logged_in(inside.url, inside.token("observe", "train", "predict"))
    assert 'href="/first-steps"' not in other.get("/streams").text
    assert other.get("/first-steps").status_code == 403


def test_forms_without_the_session_s_word_change_nothing(inside: Inside) -> None:
    visitor = logged_in(inside.url, inside.token())
    form = {"name": "s", "schema": DRAFTED, "seen": "yes"}
    assert visitor.post("/first-steps/create", data=form).status_code == 403
    assert sent(visitor, "/first-steps/create", **form).status_code == 303
    assert inside.caller().get("/v1/streams").json() == {"streams": ["s"]}
    rows = {"rows": "time,carrier,late\n2024-05-01T08:00,AA,true\n"}
    assert visitor.post("/streams/s/first-steps/rows", data=rows).status_code == 403
    assert inside.caller().get("/v1/streams/s").json()["hot_rows"] == 0


@pytest.mark.parametrize(
    ("path", "form", "name"),
    [
        ("draft", {"name": "a b", "sample": "a,label\n1,2\n"}, "name"),
        ("draft", {"name": "s", "sample": "a,label\n1\n"}, "sample"),
        ("plan", {"name": "s", "schema": "[label"}, "schema"),
        ("plan", {"name": "s", "schema": f"{DRAFTED}\n[settings]\nepsilon = 1\n"}, "schema"),
        ("plan", {"name": "s", "schema": DRAFTED, "epsilon": "-1"}, "epsilon"),
        ("plan", {"name": "s", "schema": DRAFTED, "by": "target", "target": "7"}, "target"),
        ("plan", {"name": "s", "schema": DRAFTED, "window": "0"}, "window"),
        ("plan", {"name": "s", "schema": DRAFTED, "hot": "a few"}, "hot"),
        ("plan", {"name": "s", "schema": DRAFTED, "retention": ""}, "retention"),
        ("create", {"name": "", "schema": DRAFTED}, "name"),
        ("create", {"name": "s", "schema": f"{DRAFTED}# CHANGE: this\n"}, "seen"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(
    visitor: httpx.Client, path: str, form: dict[str, str], name: str
) -> None:
    answer = sent(visitor, f"/first-steps/{path}", **form)
    assert answer.status_code == 422
    assert f'role="alert" id="wrong-{name}"' in answer.text
    assert visitor.get("/v1/streams").status_code == 401  # pages have no say over the API
    if name in form and path == "plan":
        assert f'aria-describedby="wrong-{name}"' in answer.text


@pytest.mark.parametrize("length", ["rows", "1d", "7d", "30d"])
def test_a_stream_is_made_with_each_length_of_a_window(inside: Inside, length: str) -> None:
    visitor = logged_in(inside.url, inside.token())
    form = {"name": "s", "schema": DRAFTED, "length": length, "window": "500", "epsilon": "2"}
    assert sent(visitor, "/first-steps/create", **form).status_code == 303
    settings = inside.caller().get("/v1/streams/s/schema").json()["settings"]
    assert settings["count_window"] == (500 if length == "rows" else length)
    assert settings["epsilon"] == 2


def test_many_features_are_asked_for_in_one_line(inside: Inside) -> None:
    features = [Categorical(f"f{n}", domain=["x", "y"]) for n in range(MOST + 1)]
    schema = Schema(features=features, label=Label("y", classes=[0, 1]))
    inside.create(schema=schema, count_window="20 rows", hot_rows=100)
    names = [*schema.feature_names, "y"]
    lines = [",".join(["xy"[n % 2]] * len(features) + [str(n % 3 % 2)]) for n in range(40)]
    visitor, here = logged_in(inside.url, inside.token()), "/streams/s/first-steps"
    rows = "\n".join([",".join(names), *lines])
    assert sent(visitor, f"{here}/rows", here, rows=rows).status_code == 200
    for name in ("", "a/b", "m" * 5_000):  # no address has such a name, so none could be deleted
        told = sent(visitor, f"{here}/model", here, model=name, estimator="LogisticRegression")
        assert "choose another" in told.text
    made = sent(visitor, f"{here}/model", here, model="m", estimator="LogisticRegression")
    assert made.status_code == 303, made.text
    line = "\n".join((",".join(schema.feature_names), ",".join("x" * len(features))))
    answer = sent(visitor, f"{here}/prediction", here, model="m", line=line)
    assert 'class="answer"' in answer.text


def test_a_name_that_is_taken_is_said_at_the_name(inside: Inside) -> None:
    inside.create()
    visitor = logged_in(inside.url, inside.token())
    answer = sent(visitor, "/first-steps/create", name="s", schema=DRAFTED)
    assert answer.status_code == 422
    assert 'id="wrong-name"' in answer.text


def test_rows_that_do_not_fit_are_refused_on_the_page_without_a_value(inside: Inside) -> None:
    inside.create()
    visitor = logged_in(inside.url, inside.token())
    here = "/streams/s/first-steps"
    answer = sent(visitor, f"{here}/rows", here, rows="t,y,a,b\n1,Zq7,q,x\n")
    assert answer.status_code == 422
    assert 'id="wrong-rows"' in answer.text
    assert "Zq7" not in answer.text


def test_a_part_that_is_sent_again_is_counted_once(inside: Inside) -> None:
    inside.create()
    visitor = logged_in(inside.url, inside.token())
    here = "/streams/s/first-steps"
    rows = f"t,y,a,b\n{inside.clock.now},1,q,x\n"
    for _ in range(2):
        answer = sent(visitor, f"{here}/rows", here, rows=rows, key="größe 1")
        assert 'data-accepted="1"' in answer.text
    assert inside.caller().get("/v1/streams/s").json()["hot_rows"] == 1


def test_each_step_says_which_role_it_needs(inside: Inside) -> None:
    inside.create()
    inside.fill()
    visitor = logged_in(inside.url, inside.token("observe"))
    page = visitor.get("/streams/s/first-steps").text
    assert 'id="rows-form"' in page
    assert "role <code>train</code>" in page
    assert (
        sent(visitor, "/streams/s/first-steps/model", "/streams/s/first-steps").status_code == 403
    )


def test_names_in_a_schema_and_a_file_cannot_become_markup(visitor: httpx.Client) -> None:
    schema = DRAFTED.replace('"carrier"', '"<script>x</script>"')
    form = {"name": "s", "schema": schema, "file": '"><script>y</script>'}
    answer = sent(visitor, "/first-steps/plan", **form)
    assert answer.status_code == 200
    made = sent(visitor, "/first-steps/create", **form)
    page = visitor.get(made.headers["location"]).text
    for text in (answer.text, page):
        assert "<script>x" not in text
        assert "<script>y" not in text


def test_a_value_with_a_place_in_it_stays_quoted() -> None:
    told = Commands("http://h").observe("s", "a{file};touch x;{key}").text
    words = shlex.split(told.splitlines()[0])
    assert "@a{file};touch x;{key}" in words
    assert "touch" not in words
