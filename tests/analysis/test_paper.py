"""results/paper: every number the sources state, none besides, each with where it is from."""

from analysis.paper import COLUMNS, FOLDER, RELATIONS, STATUSES, in_words, paper_numbers

TABLE_1 = {
    "Vanilla": (18.0, 47.9),
    "TV budget": (14.3, 36.4),
    "observation window": (0.4, 8.7),
    "self-attention": (4.8, 23.5),
    "VV+TT": (4.6, 22.8),
    "TV+TT": (11.0, 37.3),
    "evict text first": (0.2, 4.4),
    "evict vision first": (10.0, 31.0),
}
SENTENCES = [99.2, 97.4, 93.3, 92.1, 92.5, 0.5, 57.4, 3.91, 0.20, 52.6, 2, 2, 95]


def test_table_1_is_whole():
    table = paper_numbers().query("table == '1'")
    found = {wording: tuple(group["value"]) for wording, group in table.groupby("wording")}
    assert found == TABLE_1
    assert set(table["status"]) == {"reported"}


def test_no_number_is_there_that_the_sources_do_not_state():
    assert sorted(paper_numbers().query("table != '1'")["value"]) == sorted(SENTENCES)


def test_every_row_says_where_it_is_from_and_in_which_words():
    table = paper_numbers()
    for path in FOLDER.glob("*.csv"):
        assert path.read_text().splitlines()[0].split(",") == COLUMNS, path
    assert table["value"].notna().all()
    assert set(table["status"]) <= set(STATUSES)
    assert set(table["relation"]) <= set(RELATIONS)
    assert (table["wording"] != "").all()
    assert table["source"].str.contains("arXiv 2606.03075").all()


def test_what_is_unknown_is_empty():
    table = paper_numbers().set_index("wording")
    assert table.loc["TextCaps drop < 0.5 % at 50 %", "model"] == ""
    assert table.loc["TV budget", "method"].tolist() == ["", ""]
    assert table["retention"].isna().sum() == 3


def test_numbers_keep_what_they_are_when_shown():
    shown = [in_words(row) for _, row in paper_numbers().iterrows()]
    assert "14.3" in shown
    assert "99.2 % of full" in shown
    assert "> 95 % of full" in shown
    assert "drop < 0.5 %" in shown
