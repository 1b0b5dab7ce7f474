"""N answers find their room at any size, and can be walked, zoomed and picked by key and mouse."""

from __future__ import annotations

from itertools import combinations

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import Input

from chat_tui.widgets.grid import CompareGrid
from chat_tui.widgets.pane import Pane
from chat_tui.widgets.strip import StateStrip, tail
from chat_tui.widgets.tiles import MIN_COLUMNS, MIN_LINES, MIN_STACKED, neighbour, plan

COUNTS = (1, 2, 3, 5, 8, 9, 16)
SIZES = ((80, 19), (120, 35), (220, 55), (40, 19), (80, 8), (37, 60))


class Host(App[None]):
    """A grid above an input line, as in the program."""

    CSS = "CompareGrid { height: 1fr; } Input { dock: bottom; height: 3; }"

    def __init__(self, count: int, labels: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.count, self.labels = count, labels
        self.grid = CompareGrid()
        self.told: list[Message] = []

    def compose(self) -> ComposeResult:
        yield self.grid
        yield Input()

    def on_mount(self) -> None:
        self.grid.start(self.count, self.labels)

    def on_compare_grid_picked(self, message: CompareGrid.Picked) -> None:
        self.told.append(message)

    def on_compare_grid_focus_moved(self, message: CompareGrid.FocusMoved) -> None:
        self.told.append(message)

    def picked(self) -> list[int]:
        return [told.index for told in self.told if isinstance(told, CompareGrid.Picked)]


def visible(app: Host) -> list[int]:
    """The answers that have a place on the screen."""
    return [pane.index for pane in app.grid.panes if pane.region]


def strip_text(app: Host) -> str:
    strip = app.grid.query_one(StateStrip)
    return "\n".join(strip.render_line(y).text for y in range(strip.size.height))


async def fill(app: Host, pilot: Pilot[None]) -> None:
    """Every pane says its number; the grid is painted and has the keyboard."""
    await pilot.pause()
    for pane in app.grid.panes:
        pane.feed(f"This is answer {pane.index + 1}.")
    app.grid.focus_pane(0)
    app.grid.paint()
    await pilot.pause()


class TestPlan:
    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize(("width", "height"), SIZES)
    def test_panes_fill_the_room_without_overlap(self, count: int, width: int, height: int) -> None:
        found = plan(count, width, height)
        if found.strip is not None:
            assert found.strip.height in (1, 2)
            assert found.tiles[0].area + found.strip.area == width * height
            return
        assert sum(tile.area for tile in found.tiles) == width * height
        assert not any(a.overlaps(b) for a, b in combinations(found.tiles, 2))

    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize(("width", "height"), SIZES)
    def test_no_pane_is_too_small_to_read(self, count: int, width: int, height: int) -> None:
        found = plan(count, width, height)
        if found.strip is None and count > 1:
            beside = any(tile.width < width for tile in found.tiles)
            several = any(tile.height < height for tile in found.tiles)
            assert all(tile.width >= min(MIN_COLUMNS, width) for tile in found.tiles)
            if several:
                least = MIN_LINES if beside else MIN_STACKED
                assert all(tile.height >= least for tile in found.tiles)

    @pytest.mark.parametrize(
        ("count", "width", "height", "rows"),
        [
            (1, 80, 19, [1]),
            (2, 80, 19, [2]),
            (3, 120, 35, [3]),
            (3, 80, 19, [2, 1]),
            (5, 150, 35, [3, 2]),
            (8, 220, 55, [4, 4]),
            (8, 120, 35, [3, 3, 2]),
            (2, 60, 19, [1, 1]),
            (3, 60, 15, [1, 1, 1]),
        ],
    )
    def test_side_by_side_then_rows(
        self, count: int, width: int, height: int, rows: list[int]
    ) -> None:
        tiles = plan(count, width, height).tiles
        tops = [tile.y for tile in tiles]
        assert [tops.count(top) for top in sorted(set(tops))] == rows

    @pytest.mark.parametrize(
        ("count", "group", "width", "height", "rows"),
        [
            (6, 2, 120, 35, [2, 2, 2]),  # three would put two models into one row
            (6, 2, 220, 55, [6]),
            (6, 3, 120, 35, [3, 3]),
            (8, 4, 120, 35, [2, 2, 2, 2]),  # half a group
            (6, 3, 80, 19, [2, 2, 2]),  # there is no room for it
        ],
    )
    def test_rows_end_where_groups_do(
        self, count: int, group: int, width: int, height: int, rows: list[int]
    ) -> None:
        tops = [tile.y for tile in plan(count, width, height, group=group).tiles]
        assert [tops.count(top) for top in sorted(set(tops))] == rows

    @pytest.mark.parametrize(("count", "width", "height"), [(8, 80, 19), (3, 40, 12), (16, 80, 24)])
    def test_else_one_and_a_strip(self, count: int, width: int, height: int) -> None:
        assert plan(count, width, height).strip is not None

    def test_zoom_is_one_and_a_strip_at_any_size(self) -> None:
        assert plan(2, 220, 60, zoomed=True).strip == Region(0, 0, 220, 1)

    def test_neighbours_are_those_one_sees(self) -> None:
        tiles = plan(5, 150, 30).tiles  # three above two
        assert [neighbour(tiles, 0, way) for way in ("left", "right", "up", "down")] == [
            None,
            1,
            None,
            3,
        ]
        assert neighbour(tiles, 2, "down") == 4
        assert neighbour(tiles, 3, "up") == 0
        assert neighbour(tiles, 4, "right") is None


class TestLayouts:
    @pytest.mark.parametrize(
        ("size", "count", "expected"),
        [
            ((80, 24), 1, [0]),
            ((80, 24), 2, [0, 1]),
            ((80, 24), 3, [0, 1, 2]),
            ((80, 24), 8, [0]),
            ((120, 40), 8, list(range(8))),
            ((220, 60), 8, list(range(8))),
            ((40, 24), 2, [0, 1]),
            ((40, 24), 3, [0, 1, 2]),
            ((40, 24), 8, [0]),
        ],
    )
    async def test_who_is_on_the_screen(
        self, size: tuple[int, int], count: int, expected: list[int]
    ) -> None:
        app = Host(count)
        async with app.run_test(size=size) as pilot:
            await fill(app, pilot)
            assert visible(app) == expected
            for pane in (app.grid.panes[index] for index in expected):
                first = pane.scrollable_content_region.offset
                assert pane.lines[0].text.startswith("This is answer"), first

    @pytest.mark.parametrize("size", [(80, 24), (40, 24)])
    async def test_the_strip_shows_all_eight_and_which_is_shown(
        self, size: tuple[int, int]
    ) -> None:
        app = Host(8)
        async with app.run_test(size=size) as pilot:
            await fill(app, pilot)
            app.grid.pane(3).finish("stop")
            app.grid.pane(4).finish("length")
            await pilot.press("right")
            app.grid.paint()
            await pilot.pause()
            text = strip_text(app)
            assert all(str(n) in text for n in range(1, 9))
            assert (text.count("●"), text.count("✓"), text.count("…")) >= (6, 1, 1)
            assert visible(app) == [1]
            strip = app.grid.query_one(StateStrip)
            marked = [
                segment.text.strip()
                for y in range(strip.size.height)
                for segment in strip.render_line(y)
                if segment.style and segment.style.reverse
            ]
            assert marked == ["2"]

    async def test_a_smaller_terminal_changes_the_layout_at_once(self) -> None:
        app = Host(3)
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(app, pilot)
            await pilot.press("right")
            assert visible(app) == [0, 1, 2]
            await pilot.resize_terminal(40, 12)
            await pilot.pause()
            assert visible(app) == [1]
            assert app.grid.pane(1).has_focus
            await pilot.resize_terminal(120, 40)
            await pilot.pause()
            assert visible(app) == [0, 1, 2]

    async def test_one_answer_has_no_numbers_and_no_strip(self) -> None:
        app = Host(1)
        async with app.run_test(size=(80, 24)) as pilot:
            await fill(app, pilot)
            await pilot.press("z")
            await pilot.pause()
            assert not app.grid.query_one(StateStrip).region
            assert app.grid.pane(0).has_class("-alone")


class TestKeys:
    async def test_arrows_and_hjkl_walk_the_panes(self) -> None:
        app = Host(8)
        async with app.run_test(size=(220, 60)) as pilot:
            await fill(app, pilot)
            walked = []
            for key in ("right", "l", "down", "left", "h", "k", "j", "up"):
                await pilot.press(key)
                walked.append(app.grid.focused_index)
            assert walked == [1, 2, 6, 5, 4, 0, 4, 0]
            moved = [m.index for m in app.told if isinstance(m, CompareGrid.FocusMoved)]
            assert moved == walked
            assert app.grid.pane(0).has_focus

    async def test_at_the_edge_up_and_down_scroll(self) -> None:
        app = Host(2)
        async with app.run_test(size=(80, 24)) as pilot:
            await fill(app, pilot)
            pane = app.grid.pane(0)
            pane.feed("\n\n".join(f"paragraph {n}" for n in range(40)))
            app.grid.paint()
            await pilot.pause()
            end = pane.scroll_offset.y
            await pilot.press("up", "k")
            assert pane.scroll_offset.y == end - 2
            await pilot.press("j")
            assert pane.scroll_offset.y == end - 1
            await pilot.press("home")
            assert pane.scroll_offset.y == 0

    async def test_in_the_strip_left_and_right_change_what_is_shown(self) -> None:
        app = Host(8)
        async with app.run_test(size=(80, 24)) as pilot:
            await fill(app, pilot)
            await pilot.press("left")
            assert visible(app) == [0]
            await pilot.press("right", "right")
            await pilot.pause()
            assert visible(app) == [2]
            assert app.grid.pane(2).has_focus

    async def test_digits_pick(self) -> None:
        app = Host(3)
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(app, pilot)
            await pilot.press("2", "9")
            assert app.picked() == [1]

    async def test_enter_picks_the_focused(self) -> None:
        app = Host(3)
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(app, pilot)
            await pilot.press("right", "enter")
            assert app.picked() == [1]

    async def test_digits_typed_into_the_prompt_pick_nothing(self) -> None:
        app = Host(3)
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(app, pilot)
            app.query_one(Input).focus()
            await pilot.press("2", "z")
            assert app.picked() == []
            assert not app.grid.zoomed

    async def test_z_zooms_and_back(self) -> None:
        app = Host(3, ("T 0.2", "T 0.7", "T 1"))
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(app, pilot)
            await pilot.press("right", "z")
            await pilot.pause()
            assert visible(app) == [1]
            assert "This is answer 3." in strip_text(app)
            assert "T 0.2" in strip_text(app)
            await pilot.press("z")
            await pilot.pause()
            assert visible(app) == [0, 1, 2]

    async def test_bindings_describe_themselves(self) -> None:
        for widget in (CompareGrid, Pane):
            for binding in widget.BINDINGS:
                assert binding.description  # type: ignore[union-attr]


class TestMouse:
    async def test_a_click_focuses_a_pane(self) -> None:
        app = Host(3)
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(app, pilot)
            await pilot.click(app.grid.pane(2), offset=(5, 2))
            assert app.grid.focused_index == 2

    async def test_a_click_on_the_strip_shows_that_answer(self) -> None:
        app = Host(8)
        async with app.run_test(size=(80, 24)) as pilot:
            await fill(app, pilot)
            await pilot.click(StateStrip, offset=(45, 1))
            await pilot.pause()
            assert visible(app) == [6]
            assert app.grid.pane(6).has_focus


class TestTurns:
    async def test_a_new_turn_replaces_the_old(self) -> None:
        app = Host(3)
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(app, pilot)
            await pilot.press("right", "z")
            app.grid.start(2)
            await pilot.pause()
            assert (app.grid.focused_index, app.grid.zoomed) == (0, False)
            assert visible(app) == [0, 1]
            app.grid.clear()
            await pilot.pause()
            assert len(app.grid.query(Pane)) == 0

    async def test_answers_out_of_view_are_complete_when_they_come_into_view(self) -> None:
        app = Host(8)
        async with app.run_test(size=(80, 24)) as pilot:
            await fill(app, pilot)
            app.grid.pane(1).feed(" More of it.")
            app.grid.pane(1).finish("stop")
            app.grid.paint()
            await pilot.press("right")
            await pilot.pause()
            assert app.grid.pane(1).lines[0].text == "This is answer 2. More of it."


def test_the_tail_is_cut_before_its_last_words() -> None:
    assert tail("short", 10) == "short"
    assert tail("one two three", 8) == "…o three"
    assert tail("x" * 200 + "\n end\x1b", 6) == "…end␛"
