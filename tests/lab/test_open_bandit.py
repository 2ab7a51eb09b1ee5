from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from lab.open_bandit import CAMPAIGNS, POLICIES, load
from pyramidion import Settings
from pyramidion.errors import ObservationError, SchemaError, StorageError
from pyramidion.rows.observations import Door

HEAD = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,"
    "user_feature_2,user_feature_3,user-item_affinity_0,user-item_affinity_1"
)
LATE = "0,2019-11-24 00:00:02.5+00:00,1,3,1,0.5,a,b,c,d,0.0,2.0"
EARLY = "1,2019-11-24 01:00:01+01:00,0,1,0,0.25,e,f,g,h,1.0,0.0"
ITEMS = (
    ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3",
    "0,0,-0.5,x,y,z",
    "1,1,0.5,X,y,Z",
)
SECONDS = 1_574_553_600  # 2019-11-24 00:00:00


def made(folder: Path, *lines: str, head: str = HEAD, items: tuple[str, ...] = ITEMS) -> Path:
    inside = folder / "random" / "all"
    inside.mkdir(parents=True)
    (inside / "all.csv").write_text("\n".join([head, *lines]) + "\n")
    (inside / "item_context.csv").write_text("\n".join(items) + "\n")
    return folder


def test_rows_come_in_the_order_of_time(tmp_path: Path) -> None:
    table = load(made(tmp_path, LATE, EARLY)).table(0, 2)
    assert table["time"].to_pylist() == [SECONDS + 1, SECONDS + 2]
    assert table["click"].to_pylist() == [0, 1]


def test_items_bring_their_categories_and_the_users_affinity(tmp_path: Path) -> None:
    _, late = load(made(tmp_path, LATE, EARLY)).table(0, 2).to_pylist()
    assert late == {
        "time": SECONDS + 2,
        "item_id": 1,
        "position": 3,
        "click": 1,
        "propensity_score": 0.5,
        "user_feature_0": "a",
        "user_feature_1": "b",
        "user_feature_2": "c",
        "user_feature_3": "d",
        "item_feature_1": "X",
        "item_feature_2": "y",
        "item_feature_3": "Z",
        "affinity": 2.0,
    }


def test_items_are_declared_and_users_are_open(tmp_path: Path) -> None:
    schema = load(made(tmp_path, LATE)).schema
    domains = {feature.name: feature.to_dict().get("domain") for feature in schema.features}
    assert domains["item_id"] == [0, 1]
    assert domains["item_feature_1"] == ["X", "x"]
    assert domains["user_feature_0"] is None


def test_propensities_weigh_only_where_that_is_asked_for(tmp_path: Path) -> None:
    made(tmp_path, LATE)
    assert load(tmp_path).schema.weight is None
    assert load(tmp_path, weighted=True).schema.weight == "propensity_score"


def test_weighted_rows_have_a_fingerprint_of_their_own(tmp_path: Path) -> None:
    made(tmp_path, LATE)
    assert load(tmp_path).fingerprint != load(tmp_path, weighted=True).fingerprint


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("2019-11-24 00:00:02.5+00:00", "", "line 2 of all.csv has no timestamp"),
        ("2019-11-24 00:00:02.5+00:00", "noon", "line 2 of all.csv has a timestamp that is not a"),
        (",1,3,1,", ",2,3,1,", "line 2 of all.csv has a item_id that is not in item_context.csv"),
        (",1,3,1,", ",1,4,1,", "line 2 of all.csv has a position that is not 1, 2 or 3"),
        (",1,3,1,", ",1,3,2,", "line 2 of all.csv has a click that is not 0 or 1"),
        (",0.5,", ",0,", "line 2 of all.csv has a propensity_score that is not above 0"),
        (",0.5,", ",nan,", "line 2 of all.csv has a propensity_score that is not above 0"),
        (",0.0,2.0", ",0.0", "line 2 of all.csv has 11 fields; expected 12"),
    ],
)
def test_flaws_are_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(ObservationError) as error:
        load(made(tmp_path, LATE.replace(old, new)))
    assert str(error.value).startswith(told)


def test_a_log_without_an_items_affinity_is_told(tmp_path: Path) -> None:
    head, line = HEAD.rsplit(",", 1)[0], LATE.rsplit(",", 1)[0]
    with pytest.raises(ObservationError, match=r"all\.csv has no column user-item_affinity_1"):
        load(made(tmp_path, line, head=head))


def test_an_item_listed_twice_is_told(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match=r"item_context\.csv lists an item twice"):
        load(made(tmp_path, LATE, items=(*ITEMS, ITEMS[1])))


def test_a_wrong_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"holds random/all/all\.csv and random/all/item_con"):
        load(tmp_path / "none")


def test_other_policies_and_campaigns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no policy 'best'; use one of random, bts"):
        load(tmp_path, policy="best")
    with pytest.raises(SchemaError, match="no campaign 'kids'; use one of all, men, women"):
        load(tmp_path, campaign="kids")


def test_real_rows_are_what_they_are_known_to_be(open_bandit: Path) -> None:
    every = [load(open_bandit, campaign, policy) for policy in POLICIES for campaign in CAMPAIGNS]
    assert [data.rows for data in every] == [10_000] * 6
    assert sum(pc.sum(data.table(0, data.rows)["click"]).as_py() for data in every) == 287
    assert len({data.fingerprint for data in every}) == 6


def test_a_store_takes_real_rows(open_bandit: Path) -> None:
    data = load(open_bandit, "men", "bts", weighted=True)
    door = Door(data.schema, Settings(epsilon=1.0, p_min=1e-4), b"secret")
    assert len(door.observations(data.table(0, 5_000))) == 5_000
